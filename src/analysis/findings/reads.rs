//! What PyTorch's host does only to read a value: the operator that reads it, and those that compute it for that.
//!
//! A trace does not say which operator uses which tensor. But a condition, such as `(x - y).abs().max() < tolerance`,
//! is computed right before it is read, and what it is computed by can be told by names.

use super::window::Window;
use crate::trace::{Span, SpanId, ThreadId, Timestamp};
use std::collections::{BTreeMap, HashMap};

/// Operators that return the value of a tensor.
const READS: &[&str] = &["is_nonzero", "item", "_local_scalar_dense"];
/// Operators that take a part of a tensor, or look at it in another shape.
const VIEWS: &[&str] = &["select", "slice", "narrow", "squeeze", "view", "reshape", "flatten", "detach", "alias"];
/// Operators that return whether something is true. Nothing has a gradient through these.
const CONDITIONS: &[&str] = &[
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "all",
    "any",
    "isnan",
    "isinf",
    "isfinite",
    "logical_and",
    "logical_or",
    "logical_not",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "__and__",
    "__or__",
    "bitwise_and",
    "bitwise_or",
    "bitwise_not",
];
/// Operators that make one number of many.
const REDUCTIONS: &[&str] = &["max", "min", "amax", "amin", "sum", "mean", "norm", "linalg_vector_norm"];
/// Operators that say how large each number is.
const MAGNITUDES: &[&str] = &["abs", "pow", "square"];
/// Operators that compare two tensors by their difference. What comes before is computed for other reasons.
const DIFFERENCES: &[&str] = &["sub", "rsub"];

/// A stretch of a thread's time that serves a read and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    thread: ThreadId,
    start: Timestamp,
    end: Timestamp,
}

impl Reading {
    /// Returns the items in this time.
    pub(super) fn items(&self, window: &Window<'_>) -> impl Iterator<Item = usize> {
        let items = &window.simulation.items;
        let from = items.partition_point(|item| (item.thread, item.start) < (self.thread, self.start));
        let inside = items[from..].iter().take_while(|item| item.thread == self.thread && item.end <= self.end);
        from..from + inside.count()
    }
}

/// Returns what is there only for reads in these spans.
pub(super) fn readings(window: &Window<'_>, spans: impl Iterator<Item = SpanId>) -> Vec<Reading> {
    let trace = window.trace();
    let outermost = |id: SpanId| trace.span(id).stack().take_while(|span| is_one_of(*span, READS)).last();
    let mut reads: Vec<Span<'_>> = spans.filter_map(outermost).collect();
    reads.dedup_by_key(|read| read.id());
    if reads.is_empty() {
        return Vec::new();
    }
    // Operators next to each of them, in order of time.
    let mut siblings: HashMap<Option<SpanId>, Vec<Span<'_>>> = HashMap::new();
    for read in &reads {
        siblings.entry(read.parent().map(Span::id)).or_default();
    }
    for span in trace.spans() {
        siblings.entry(span.parent().map(Span::id)).and_modify(|spans| spans.push(span));
    }
    siblings.values_mut().for_each(|spans| spans.sort_by_key(|span| (span.track().thread(), span.start())));
    let before = |read: &Span<'_>| {
        let all = &siblings[&read.parent().map(Span::id)];
        let key = (read.track().thread(), read.start());
        let past = all.partition_point(|span| (span.track().thread(), span.start()) < key);
        all[..past].iter().rev().copied().take_while(move |span| span.track().thread() == key.0)
    };
    let chains: Vec<Vec<Span<'_>>> = reads.iter().map(|read| chain(before(read))).collect();
    let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    chains.iter().for_each(|chain| *counts.entry(names(chain)).or_default() += 1);
    let reading = |(read, chain): (&Span<'_>, &Vec<Span<'_>>)| {
        // One that is tested once in a step may be the loss, which is needed anyway. One that is tested again and again
        // ends a loop.
        let ends_loop = counts[&names(chain)] > window.count();
        let is_sure = |span: &&Span<'_>| is_one_of(**span, VIEWS) || is_one_of(**span, CONDITIONS);
        let length = if ends_loop { chain.len() } else { chain.iter().take_while(is_sure).count() };
        let first = chain[..length].last().unwrap_or(read);
        // Python takes the time since the operator before to call the first of these.
        let start = before(read).nth(length).map_or(first.start(), Span::end).min(first.start());
        Reading { thread: read.track().thread(), start, end: read.end() }
    };
    reads.iter().zip(&chains).map(reading).collect()
}

/// Returns the operators that compute a condition, of those before a read, the last one first.
fn chain<'a>(before: impl Iterator<Item = Span<'a>>) -> Vec<Span<'a>> {
    const ORDER: [&[&str]; 3] = [REDUCTIONS, MAGNITUDES, DIFFERENCES];
    let (mut chain, mut is_condition, mut place) = (Vec::new(), false, 0);
    for span in before {
        let is_sure = place == 0 && (is_one_of(span, VIEWS) || is_one_of(span, CONDITIONS));
        if is_sure {
            is_condition |= is_one_of(span, CONDITIONS);
        } else {
            let next = (place..=ORDER.len()).find(|&next| next > 0 && is_one_of(span, ORDER[next - 1]));
            let Some(next) = next.filter(|_| is_condition) else { break };
            place = next;
        }
        chain.push(span);
        if place == ORDER.len() {
            break;
        }
    }
    chain
}

fn names<'a>(spans: &[Span<'a>]) -> Vec<&'a str> {
    spans.iter().map(|span| span.name()).collect()
}

/// Whether a span is one of these operators of PyTorch.
fn is_one_of(span: Span<'_>, operators: &[&str]) -> bool {
    span.name().strip_prefix("aten::").is_some_and(|name| operators.contains(&name))
}
