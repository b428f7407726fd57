//! What takes a notable part of a step without a finding: spans of which it is not known whether they wait or compute,
//! calls that look the same, and a machine that is busy in all steps alike.

use super::{
    super::{
        machine,
        open_question::{OpenQuestion, QuestionKind},
        sorted::SortedMap,
    },
    host_waits::{LEAST_OFF_CPU, LEAST_SHARE},
    off_cpu::WaitStack,
    waits_for::WaitsFor,
    window::{SpanGroup, Window},
    words,
};
use crate::trace::{CallsiteId, Framework, Span, SpanId, StepId};
use std::{cmp::Reverse, time::Duration};

/// The most spans that are named.
const SPANS: usize = 2;
/// The least calls in a step that look the same: two or three are as often meant to be different.
const CALLS: usize = 4;
/// The most by which calls that look the same differ in their time, except for a tenth on each side.
const ALIKE: f64 = 1.5;
/// Words in the names of spans of which each is another part of a model or of the data.
const PARTS: [&str; 8] = ["layer", "block", "stage", "head", "batch", "chunk", "expert", "step"];

/// Returns what is not known of a window, the longest first. With GPU activity, rules look at all of the host's time.
pub(super) fn open_questions(window: &Window<'_>) -> Vec<OpenQuestion> {
    let mut questions: Vec<_> = machine::busy_machine(window.trace()).into_iter().collect();
    // PyTorch's profiler has spans of operators, and nothing of what they wait for.
    if !window.simulation.is_host_only() || window.framework == Framework::PyTorch {
        return questions;
    }
    let same = same_calls(window);
    let own = window.items().filter(|(_, item)| item.thread == window.thread && item.span.is_some());
    let groups = window.groups(own.map(|(index, item)| (index, item.span, item.nanos())));
    let mut spans: Vec<_> = groups.iter().filter_map(|group| span_question(window, group)).collect();
    spans.retain(|span| span.is_notable(window.step) && same.iter().all(|same| same.path != span.path));
    spans.sort_by_key(|question| Reverse(question.each));
    spans.truncate(SPANS);
    questions.extend(same.into_iter().chain(spans));
    questions
}

fn question(window: &Window<'_>, span: SpanId, kind: QuestionKind, nanos: u64) -> OpenQuestion {
    let (trace, each) = (window.trace(), Duration::from_nanos(nanos));
    let path = words::Place::of(trace, Some(span)).path;
    OpenQuestion { path, place: words::place(trace, Some(span)), kind, each }
}

/// Returns what is not known of the time that spans of one callsite take themselves.
fn span_question(window: &Window<'_>, group: &SpanGroup) -> Option<OpenQuestion> {
    let (id, trace, off_cpu) = (group.span?, window.trace(), &window.off_cpu);
    let span = trace.span(id);
    // A finding of its own, whatever the thread does meanwhile.
    if window.input_of(Some(id)).is_some() {
        return None;
    }
    let items = &window.simulation.items;
    let each = |part: &dyn Fn(Span<'_>) -> f64| {
        window.each_step(group.members.iter().map(|&index| {
            let share = items[index].span.map_or(0.0, |span| part(trace.span(span)));
            (index, (items[index].nanos() as f64 * share) as u64)
        }))
    };
    let own = each(&|_| 1.0);
    let is_sampled = off_cpu.is_sampled();
    let waited = each(&|span| off_cpu.waiting_share(span));
    // A wait that is no finding is one for others.
    let is_wait = waited as f64 >= LEAST_OFF_CPU * own as f64
        || (off_cpu.has_waits() && waited as f64 >= LEAST_SHARE * window.median.as_nanos() as f64);
    Some(match () {
        () if is_wait && !WaitsFor::is_denied(span) => {
            let stack = off_cpu.stack(span.callsite_id()).map(WaitStack::sentence);
            question(window, id, QuestionKind::Waits { stack }, waited)
        }
        () if off_cpu.is_known(span) => {
            let runs = 100.0 * own.saturating_sub(waited) as f64 / own.max(1) as f64;
            question(window, id, QuestionKind::Computes { is_sampled, runs }, own)
        }
        () => question(window, id, QuestionKind::ComputesOrWaits, own),
    })
}

/// Finds spans without others in them that are called as often in each step from one span, with equal fields, and take
/// about as long each time. Whether they do the same is not known.
fn same_calls(window: &Window<'_>) -> Vec<OpenQuestion> {
    let trace = window.trace();
    let mut calls: SortedMap<CallsiteId, SortedMap<StepId, Vec<SpanId>>> = SortedMap::default();
    let is_own = |span: &Span<'_>| span.track().thread() == window.thread && span.input_stage().is_none();
    for span in trace.spans().filter(is_own) {
        if let Some(step) = span.step_id().filter(|&step| window.is_regular(step)) {
            calls.or_default(span.callsite_id()).or_default(step).push(span.id());
        }
    }
    calls.into_values().filter_map(|steps| of_callsite(window, &steps)).max_by_key(|it| it.each).into_iter().collect()
}

fn of_callsite(window: &Window<'_>, steps: &SortedMap<StepId, Vec<SpanId>>) -> Option<OpenQuestion> {
    let trace = window.trace();
    let first = steps.values().next()?;
    let (calls, span) = (first.len(), trace.span(*first.first()?));
    let in_each = steps.len() == window.count() && steps.values().all(|of_step| of_step.len() == calls);
    if calls < CALLS || !in_each || WaitsFor::of(span).is_some() || is_part(span) {
        return None;
    }
    // Fields of operations describe the model, of which many parts are alike.
    let fields =
        |span: Span<'_>| span.fields().iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let is_alike = |of_step: &Vec<SpanId>| {
        let mut spans = of_step.iter().map(|&id| trace.span(id));
        let Some(first) = spans.next() else { return false };
        let parent = |span: Span<'_>| span.parent().map(Span::id);
        let (own, around) = (fields(first), parent(first));
        let is_same = |span: Span<'_>| parent(span) == around && fields(span) == own;
        own.iter().all(|field| !field.starts_with("op.")) && spans.all(is_same)
    };
    let all: Vec<Span<'_>> = steps.values().flatten().map(|&id| trace.span(id)).collect();
    if !all.iter().all(|span| span.self_time() == span.duration()) || !steps.values().all(is_alike) {
        return None;
    }
    let mut times: Vec<_> = all.iter().map(|span| span.duration()).collect();
    times.sort_unstable();
    let tenth = times.len() / 10;
    let (short, long) = (times.get(tenth)?, times.get(times.len() - 1 - tenth)?);
    if long.as_secs_f64() > ALIKE * short.as_secs_f64() {
        return None;
    }
    let sum: Duration = all.iter().map(|span| span.duration()).sum();
    let nanos = window.per_step(sum.as_nanos() as u64);
    let found = question(window, span.id(), QuestionKind::SameCalls { calls }, nanos);
    found.is_notable(window.step).then_some(found)
}

/// Whether the name of a span says that each call is another part of something.
fn is_part(span: Span<'_>) -> bool {
    let mut words = span.name().split(|it: char| !it.is_alphabetic());
    words.any(|word| PARTS.iter().any(|part| word.trim_end_matches('s').eq_ignore_ascii_case(part)))
}
