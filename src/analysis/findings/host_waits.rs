//! The steps' thread waits: for a lock, for another thread, or for time to pass.

use super::{
    super::{
        finding::FindingKind,
        intervals::{Interval, Intervals},
    },
    place,
    window::{Candidate, Group, Window},
    words,
};
use crate::trace::{CallsiteId, Span, Timestamp, Value, convention};
use std::{collections::BTreeMap, time::Duration};

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
    let saved: BTreeMap<usize, u64> = waiting.iter().map(|&(item, _, nanos)| (item, nanos)).collect();
    let is_long = |group: &Group| {
        let each = window.each_step(group.members.iter().map(|item| (*item, saved[item])));
        each as f64 >= LEAST_SHARE * window.median.as_nanos() as f64
    };
    let groups = window.groups(waiting).into_iter().filter(is_long);
    groups.filter_map(|group| candidate(window, &group, &saved, &others)).collect()
}

fn candidate(
    window: &Window<'_>,
    group: &Group,
    saved: &BTreeMap<usize, u64>,
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
            place::name(trace, Some(span.id())),
            span.track().thread_name(),
            words::nanos(window.per_step(time.as_nanos() as u64))
        ));
    }
    Some(Candidate {
        kind: FindingKind::HostWait,
        title: format!("the steps' thread {what} for {all} of each step in {}", place::name(trace, group.span)),
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
    let mut times: BTreeMap<CallsiteId, (Span<'a>, Duration)> = BTreeMap::new();
    for &span in others.iter().filter(|span| span.parent().is_none()) {
        let first = waits.partition_point(|&(_, end)| end <= span.start());
        let overlapping = waits[first..].iter().take_while(|(start, _)| *start < span.end());
        let time = overlapping.map(|&(start, end)| end.min(span.end()).since(start.max(span.start()))).sum();
        times.entry(span.callsite_id()).or_insert((span, Duration::ZERO)).1 += time;
    }
    times.into_values().max_by_key(|(_, time)| *time).filter(|(_, time)| !time.is_zero())
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
