//! Spans that do the same again: work of the same shapes twice in a step, or calls with the same data.

use super::{
    super::{
        finding::{FindingKind, TimeRange},
        sorted::{SortedMap, SortedSet},
    },
    window::{Candidate, Window},
    words,
};
use crate::trace::{CallsiteId, Detail, Span, SpanId, StepId};
use rustc_hash::{FxHashMap, FxHashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The least number of kernels that make two spans comparable.
const KERNELS: u64 = 4;

/// The work of a span and of all spans in it.
#[derive(Default)]
struct SpanWork {
    shapes: DefaultHasher,
    kernels: u64,
    tasks: Vec<usize>,
}

/// Finds spans that are called exactly twice in each step from the same span, and launch the same kernels of the same
/// shapes both times. Layers of a model are alike, too: so spans are left alone that are called more often, or that are
/// deeper inside than the phases of a step.
pub(super) fn repeated_work(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let mut done: FxHashMap<SpanId, SpanWork> = FxHashMap::default();
    for (index, _, work) in window.tasks() {
        for span in work.span().into_iter().flat_map(Span::stack) {
            let done = done.entry(span.id()).or_default();
            done.tasks.push(index);
            match work.detail() {
                Detail::Kernel(kernel) => {
                    (&kernel.name, kernel.grid, kernel.block).hash(&mut done.shapes);
                    done.kernels += 1;
                }
                Detail::Copy(copy) => (copy.bytes, copy.direction.as_str()).hash(&mut done.shapes),
                Detail::Fill(fill) => fill.bytes.hash(&mut done.shapes),
            }
        }
    }
    let mut calls = Vec::new();
    for span in trace.spans() {
        let Some(step) = span.step_id().filter(|&step| window.is_whole(step)) else { continue };
        let is_phase = span.parent().is_none_or(|parent| parent.parent().is_none());
        if !is_phase || span.track().thread() != window.thread {
            continue;
        }
        calls.push(((span.callsite_id(), span.parent().map(Span::id), step), span.id()));
    }
    calls.sort_unstable();
    let mut repeated: SortedMap<CallsiteId, Vec<SpanId>> = SortedMap::default();
    for spans in calls.chunk_by(|(one, _), (next, _)| one == next) {
        let &[((callsite, ..), first), (_, second)] = spans else { continue };
        let same = |one: &SpanWork, other: &SpanWork| {
            one.kernels >= KERNELS && one.kernels == other.kernels && one.shapes.finish() == other.shapes.finish()
        };
        if done.get(&first).zip(done.get(&second)).is_some_and(|(one, other)| same(one, other)) {
            repeated.or_default(callsite).push(second);
        }
    }
    let in_each_step = repeated.into_values().filter(|spans| spans.len() >= window.count());
    let mut candidates = Vec::new();
    for spans in in_each_step {
        let is_inside = |span: Option<SpanId>| {
            span.map(|id| trace.span(id))
                .is_some_and(|span| span.stack().any(|span| spans.binary_search(&span.id()).is_ok()))
        };
        let mut costs = window.costs();
        let tasks: Vec<usize> = spans.iter().flat_map(|span| done[span].tasks.iter().copied()).collect();
        tasks.iter().for_each(|&task| costs.remove_task(task));
        for (index, item) in window.items() {
            if is_inside(item.span) {
                costs.set_item(index, 0);
            }
        }
        let kernels = done[&spans[0]].kernels;
        let nanos: u64 = tasks
            .iter()
            .map(|&task| {
                let task = &window.simulation.tasks[task];
                task.end.since(task.start).as_nanos() as u64
            })
            .sum();
        let place = words::place(trace, Some(spans[0]));
        candidates.push(Candidate {
            title: format!("{place} runs twice in each step, with the same kernels and shapes"),
            span: Some(spans[0]),
            evidence: vec![format!(
                "{kernels} kernels each time; the second takes {} on the GPU.",
                words::nanos(window.per_step(nanos))
            )],
            ranges: spans
                .iter()
                .map(|&span| {
                    let span = trace.span(span);
                    TimeRange::new(trace, span.start(), span.end())
                })
                .collect(),
            ..Candidate::new(FindingKind::RepeatedWork, costs)
        });
    }
    candidates
}

/// The least number of steps that show what is done in each of them.
const STEPS: usize = 3;
/// The part of a step that is saved at the least.
const LEAST_SHARE: f64 = 0.05;
/// The most characters of fields in a sentence.
const SHOWN: usize = 60;
/// Fields that are the data that a span works on, or name it. Others, such as sizes, modes and indices, are the same
/// for different data: layers of a model are alike, and so are the parts of each batch.
const DATA: [&str; 8] = ["checksum", "document", "document_id", "hash", "prompt", "sample_id", "sentence", "text"];
/// Fields that name where data comes from. In the input pipeline, the next part of a file has the same name.
const FILES: [&str; 6] = ["file", "file_name", "filename", "path", "uri", "url"];
/// Words in the names of spans that take data from a file. Others may write to it.
const READS: [&str; 9] = ["compile", "decode", "download", "fetch", "load", "open", "parse", "read", "tokenize"];
/// Words in the names of spans that take one part of their data after the other.
const PARTS: [&str; 8] = ["batch", "block", "chunk", "line", "next", "part", "record", "row"];

/// Finds spans of the steps' thread that are called again with equal fields, of which one names the data.
pub(super) fn repeated_calls(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    if window.count() < STEPS {
        return Vec::new();
    }
    // The data of each call, and the calls made before it, in this step or in an earlier one.
    let mut known: FxHashSet<(CallsiteId, String)> = FxHashSet::default();
    let mut repeated: FxHashSet<SpanId> = FxHashSet::default();
    let mut again: SortedMap<CallsiteId, Vec<SpanId>> = SortedMap::default();
    let mut calls: FxHashMap<CallsiteId, usize> = FxHashMap::default();
    let in_steps = trace.spans().filter(|span| {
        span.track().thread() == window.thread && span.step_id().is_some_and(|step| window.is_whole(step))
    });
    for span in in_steps.filter(|span| !window.is_rare(Some(span.id()))) {
        let is_input = window.input_of(Some(span.id())).is_some();
        let Some(data) = data(span, is_input) else { continue };
        // Spans inside a repeated call are repeated with it.
        if span.stack().skip(1).any(|outer| repeated.contains(&outer.id())) {
            continue;
        }
        *calls.entry(span.callsite_id()).or_default() += 1;
        if !known.insert((span.callsite_id(), data)) {
            again.or_default(span.callsite_id()).push(span.id());
            repeated.insert(span.id());
        }
    }
    let of_callsite = |(callsite, spans): (CallsiteId, Vec<SpanId>)| candidate(window, &spans, calls[&callsite]);
    again.into_iter().filter_map(of_callsite).collect()
}

/// Returns all fields of a span as text, if one of them names the data, and the span takes all of that.
fn data(span: Span<'_>, is_input: bool) -> Option<String> {
    let is_one_of = |known: &[&str], text: &str| known.iter().any(|known| text.eq_ignore_ascii_case(known));
    let has = |known: &[&str]| span.fields().iter().any(|(name, _)| is_one_of(known, name));
    let is_called =
        |known: &[&str]| span.name().split(|it: char| !it.is_alphanumeric()).any(|word| is_one_of(known, word));
    // Long text is cut when it is recorded, so that equal beginnings say nothing.
    let is_cut = || span.fields().iter().any(|(_, value)| value.as_str().is_some_and(|text| text.ends_with('…')));
    let is_named = has(&DATA) || (has(&FILES) && !is_input && is_called(&READS));
    (is_named && !is_called(&PARTS) && !is_cut() && span.input_stage().is_none()).then(|| text(span))
}

fn text(span: Span<'_>) -> String {
    let fields: Vec<_> = span.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
    fields.join(" ")
}

fn candidate(window: &Window<'_>, again: &[SpanId], calls: usize) -> Option<Candidate> {
    let trace = window.trace();
    let &first = again.first()?;
    let is_again = |span: Span<'_>| span.stack().any(|span| again.binary_search(&span.id()).is_ok());
    let inside: Vec<_> = window
        .items()
        .filter(|(_, item)| item.thread == window.thread && item.span.is_some_and(|id| is_again(trace.span(id))))
        .map(|(index, item)| (index, item.nanos()))
        .collect();
    let nanos = window.each_step(inside.iter().copied());
    let steps: SortedSet<StepId> = again.iter().filter_map(|&id| trace.span(id).step_id()).collect();
    let is_in_most_steps = window.regular().filter(|step| steps.contains(step)).count() * 2 > window.regular().count();
    if !is_in_most_steps || (nanos as f64) < LEAST_SHARE * window.median.as_nanos() as f64 {
        return None;
    }
    // A span around the whole step, such as that of a training on one file.
    let is_around = |id: &SpanId| {
        trace.span(*id).parent().is_none() && trace.span(*id).self_time() < trace.span(*id).duration() / 2
    };
    if again.iter().all(is_around) {
        return None;
    }
    let mut costs = window.costs();
    inside.iter().for_each(|&(item, _)| costs.set_item(item, 0));
    let place = words::place(trace, Some(first));
    let same = match calls - again.len() {
        1 => "the same fields".to_owned(),
        distinct => format!("{distinct} different sets of fields"),
    };
    Some(Candidate {
        title: format!("{place} works on the same data again, for {} of each step", words::nanos(nanos)),
        each: Some(nanos),
        span: Some(first),
        evidence: vec![
            format!("Its {calls} calls in {} steps have {same}.", window.count()),
            format!("One that comes again: {}.", shown(trace.span(first))),
        ],
        ranges: window.span_ranges(again.iter().copied()),
        // Fields need not have all that the work depends on.
        least: Some(window.costs()),
        ..Candidate::new(FindingKind::RepeatedCalls, costs)
    })
}

/// The fields of a call, cut to a length that fits into a sentence.
fn shown(span: Span<'_>) -> String {
    let text = text(span);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}
