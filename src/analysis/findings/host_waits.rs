//! The steps' thread waits: for its data, for a lock, for another thread, or for time to pass.

use super::{
    super::{
        finding::FindingKind,
        intervals::{Interval, Intervals},
        simulation::Costs,
        sorted::{SortedMap, SortedSet},
    },
    window::{Candidate, SpanGroup, Window},
    words,
};
use crate::trace::{CallsiteId, Span, StepId, Timestamp, Value, convention};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The part of a step that is spent waiting at the least: threads that hand work to each other always wait a little.
const LEAST_SHARE: f64 = 0.05;

/// The thing that a span waits for, by its field [`convention::WAIT`] or by the words of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// A lock that another thread holds.
    Lock,
    /// Time to pass.
    Sleep,
    /// Something that another thread, another process or a device does.
    Other,
}

impl WaitsFor {
    /// Words that mean the same wherever they are in a name.
    const WORDS: [(&str, Self); 8] = [
        ("lock", Self::Lock),
        ("mutex", Self::Lock),
        ("sleep", Self::Sleep),
        ("backoff", Self::Sleep),
        ("wait", Self::Other),
        ("waiting", Self::Other),
        ("recv", Self::Other),
        ("barrier", Self::Other),
    ];
    /// Words that mean waiting only alone, or together with one of [`OBJECTS`](Self::OBJECTS): `join` may also join
    /// texts, and `receive` may unpack.
    const VERBS: [&str; 3] = ["join", "receive", "acquire"];
    const OBJECTS: [&str; 10] =
        ["thread", "threads", "worker", "workers", "handle", "handles", "task", "tasks", "channel", "queue"];

    pub(super) fn of(span: Span<'_>) -> Option<Self> {
        match span.field(convention::WAIT) {
            Some(Value::Bool(false)) => None,
            Some(value) => match value.as_str() {
                Some("none") => None,
                Some("lock") => Some(Self::Lock),
                Some("sleep") => Some(Self::Sleep),
                _ => Some(Self::Other),
            },
            None => Self::of_name(span.name()),
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        let words = || name.split(|it: char| !it.is_alphanumeric()).filter(|word| !word.is_empty());
        let has = |known: &str| words().any(|word| word.eq_ignore_ascii_case(known));
        let by_word = Self::WORDS.iter().find(|(word, _)| has(word)).map(|(_, kind)| *kind);
        let is_verb = Self::VERBS.iter().any(|verb| has(verb));
        let by_verb = is_verb && (words().count() == 1 || Self::OBJECTS.iter().any(|object| has(object)));
        by_word.or(by_verb.then_some(Self::Other))
    }
}

/// Finds spans in which the steps' thread waits.
///
/// All time in a span that waits for a lock or sleeps counts. Of one that waits for another thread, only the time in
/// which no other thread is in a span counts, as else somebody may do what it waits for; and if no other thread has
/// spans in these steps, nothing is known of what they do.
pub(super) fn host_wait(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    let others: Vec<_> =
        trace.spans().filter(|span| span.track().thread() != window.thread && WaitsFor::of(*span).is_none()).collect();
    let interval = |span: &Span<'_>| Interval { start: span.start(), end: span.end(), requested: None };
    let busy = Intervals::new(others.iter().map(interval).collect());
    let waiting = window.items().filter_map(|(index, item)| {
        let span = trace.span(item.span?);
        let is_own = item.thread == window.thread && window.input_of(item.span).is_none();
        let kind = WaitsFor::of(span).filter(|_| is_own)?;
        let idle = item.nanos().saturating_sub(busy.covered(item.start, item.end).as_nanos() as u64);
        match kind {
            WaitsFor::Other if others.is_empty() => None,
            WaitsFor::Other => Some((index, item.span, idle)),
            WaitsFor::Lock | WaitsFor::Sleep => Some((index, item.span, item.nanos())),
        }
    });
    let waiting: Vec<_> = waiting.collect();
    let saved: FxHashMap<usize, u64> = waiting.iter().map(|&(item, _, nanos)| (item, nanos)).collect();
    let is_long = |group: &SpanGroup| {
        let each = window.each_step(group.members.iter().map(|item| (*item, saved[item])));
        each as f64 >= LEAST_SHARE * window.median.as_nanos() as f64
    };
    let groups = window.groups(waiting).into_iter().filter(is_long);
    groups.filter_map(|group| candidate(window, &group, &saved, &others)).collect()
}

fn candidate(
    window: &Window<'_>,
    group: &SpanGroup,
    saved: &FxHashMap<usize, u64>,
    others: &[Span<'_>],
) -> Option<Candidate> {
    let trace = window.trace();
    let kind = WaitsFor::of(trace.span(group.span?))?;
    let items = &window.simulation.items;
    let mut costs = window.costs();
    for &item in &group.members {
        let left = items[item].nanos().saturating_sub(saved[&item]);
        costs.set_item(item, 0);
        costs.scale_item(item, left as f64);
    }
    let each = |nanos: &dyn Fn(usize) -> u64| {
        words::nanos(window.each_step(group.members.iter().map(|&item| (item, nanos(item)))))
    };
    let all = each(&|item| items[item].nanos());
    let what = match kind {
        WaitsFor::Lock => "waits for a lock",
        WaitsFor::Sleep => "sleeps",
        WaitsFor::Other => "waits",
    };
    let often = words::times(group.members.len(), window.count());
    let mut evidence = vec![format!("The steps' thread {what} {often} in a step.")];
    if kind == WaitsFor::Other {
        let idle = each(&|item| saved[&item]);
        evidence.push(format!("No other thread is in a span for {idle} of that: only this part counts."));
    }
    let ranges: Vec<_> = group.members.iter().map(|&item| (items[item].start, items[item].end)).collect();
    if let Some((span, time)) = longest_meanwhile(&ranges, others) {
        evidence.push(format!(
            "Meanwhile, {} is open on `{}` for {} of a step.",
            words::place(trace, Some(span.id())),
            span.track().thread_name(),
            words::nanos(window.per_step(time.as_nanos() as u64))
        ));
    }
    Some(Candidate {
        kind: FindingKind::HostWait,
        title: format!("the steps' thread {what} for {all} of each step in {}", words::place(trace, group.span)),
        span: group.span,
        evidence,
        ranges: window.item_ranges(&group.members),
        costs,
        // Threads without a span may be working in the meantime.
        least: (kind == WaitsFor::Other).then(|| window.costs()),
        most: None,
        others: Vec::new(),
    })
}

/// Returns a span of the callsite on another thread that is open for the longest while the steps' thread waits, and for
/// how long.
fn longest_meanwhile<'a>(waits: &[(Timestamp, Timestamp)], others: &[Span<'a>]) -> Option<(Span<'a>, Duration)> {
    let mut times: SortedMap<CallsiteId, (Span<'a>, Duration)> = SortedMap::default();
    for &span in others.iter().filter(|span| span.parent().is_none()) {
        let first = waits.partition_point(|&(_, end)| end <= span.start());
        let overlapping = waits[first..].iter().take_while(|(start, _)| *start < span.end());
        let time = overlapping.map(|&(start, end)| end.min(span.end()).since(start.max(span.start()))).sum();
        times.or_insert_with(span.callsite_id(), || (span, Duration::ZERO)).1 += time;
    }
    times.into_values().max_by_key(|(_, time)| *time).filter(|(_, time)| !time.is_zero())
}

/// The part of a step that it takes to receive a batch from another process, which more of them do not change.
/// PyTorch's loader takes 1.4 ms for a batch of a few KiB in a training that was looked at.
const RECEIVING: f64 = 0.1;

/// Finds time that the steps' thread spends in the input pipeline.
pub(super) fn input_bound(window: &Window<'_>) -> Vec<Candidate> {
    let trace = window.trace();
    // Calls of the GPU's API in the pipeline stay: the batch has to be copied in any case.
    let loading = window.items().filter(|(_, item)| item.thread == window.thread && item.call.is_none());
    let loading = loading.filter_map(|(index, item)| Some((index, Some(window.input_of(item.span)?), item.nanos())));
    let groups = window.groups(loading);
    let nanos = groups.iter().map(|group| group.nanos).sum();
    let Some(first) = groups.first().filter(|_| !window.is_negligible(nanos)) else { return Vec::new() };
    let has_processes = trace.spans().any(|span| span.name().contains("_MultiProcessingDataLoaderIter"));
    if has_processes && (window.per_step(nanos) as f64) < RECEIVING * window.step.as_nanos() as f64 {
        return Vec::new();
    }
    let all: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let mut costs = window.costs();
    all.iter().for_each(|&item| costs.set_item(item, 0));
    let each = words::nanos(window.each_step(all.iter().map(|&item| (item, window.simulation.items[item].nanos()))));
    let mut evidence = vec![format!("The steps' thread is in the input pipeline for {each} of a step.")];
    let is_outermost = |span: &Span<'_>| window.input_of(Some(span.id())) == Some(span.id());
    let workers: Vec<_> = window.spans_of_others().filter(is_outermost).collect();
    if !workers.is_empty() {
        let threads: SortedSet<_> = workers.iter().map(|span| span.track().thread()).collect();
        let busy: u64 = workers.iter().map(|span| span.duration().as_nanos() as u64).fold(0, u64::saturating_add);
        let threads = match threads.len() {
            1 => "One other thread loads".to_owned(),
            threads => format!("{threads} other threads load"),
        };
        evidence.push(format!("{threads} data, for {} of each step in all.", words::nanos(window.per_step(busy))));
    }
    let least = window.simulation.is_host_only().then(|| with_one_more(window, &all, !workers.is_empty()));
    vec![Candidate {
        kind: FindingKind::InputBound,
        title: format!("each step waits {each} for its data, in {}", words::place(trace, first.span)),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        costs,
        least,
        most: None,
        others: Vec::new(),
    }]
}

/// Returns the costs if the data is loaded by one thread beside the step, or, if other threads load it already, twice
/// as fast: the batch of a step is then ready after the time of its loading, or after half of the step.
fn with_one_more(window: &Window<'_>, loading: &[usize], has_workers: bool) -> Costs {
    let mut loads: SortedMap<StepId, u64> = SortedMap::default();
    for item in loading.iter().map(|&item| &window.simulation.items[item]) {
        if let Some(step) = item.step {
            *loads.or_default(step) += item.nanos();
        }
    }
    let mut costs = window.costs();
    for &index in loading {
        let item = &window.simulation.items[index];
        let Some((step, load)) = item.step.and_then(|step| Some((step, *loads.get(&step)?))) else { continue };
        let all = window.trace().steps()[step.index()].duration().as_nanos() as u64;
        let rest = all.saturating_sub(load);
        let ready = if has_workers { all / 2 } else { load };
        let left = ready.saturating_sub(rest).min(load);
        costs.set_item(index, 0);
        costs.scale_item(index, item.nanos() as f64 * left as f64 / load.max(1) as f64);
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::WaitsFor;

    #[test]
    fn spans_that_wait_are_recognised_by_words_of_their_names() {
        for name in ["lock_params", "Mutex::lock", "acquire lock"] {
            assert_eq!(WaitsFor::of_name(name), Some(WaitsFor::Lock), "{name}");
        }
        for name in ["wait", "wait_for_workers", "grads.recv", "barrier", "join", "join_workers", "acquire"] {
            assert_eq!(WaitsFor::of_name(name), Some(WaitsFor::Other), "{name}");
        }
        assert_eq!(WaitsFor::of_name("sleep"), Some(WaitsFor::Sleep));
        for name in
            ["block", "clock", "await_less", "join_heads", "receive_field", "acquire_image", "blocked_matmul", ""]
        {
            assert_eq!(WaitsFor::of_name(name), None, "{name}");
        }
    }
}
