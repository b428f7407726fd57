//! Calls that block the host in the step: waits for the GPU, memory without a pool, and kernels that are loaded.
//!
//! A wait may be there only to read a value. A trace does not say which operator of PyTorch uses which tensor. But a
//! condition, such as `(x - y).abs().max() < tolerance`, is computed right before it is read, and names tell what it is
//! computed by.

use super::{
    super::{
        finding::FindingKind,
        kinds::{is_allocation, is_load},
        simulation::Item,
        sorted::SortedSet,
    },
    copies,
    window::{Candidate, Window, total},
    words,
};
use crate::trace::{ApiCall, Direction, Span, SpanId, ThreadId, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

/// The part of a step in which the GPU is busy, from which on the host is not far from being ahead of it. If it is busy
/// for less, waits are short, and the host takes as long without them.
const BUSY: f64 = 0.5;

/// Finds calls that wait for the GPU: synchronisations, and copies of small results to the host.
pub(super) fn host_sync(window: &Window<'_>) -> Vec<Candidate> {
    // A wait in the span of a large copy to the host is for that copy, which is a problem of its own.
    let large: FxHashSet<_> = copies::readbacks(window).map(|(_, item)| window.simulation.items[item].span).collect();
    let is_read = |item| window.copy_of(item).is_some_and(|copy| copy.direction == Direction::DeviceToHost);
    // So is one in the operation that copies from pageable memory.
    let uploads: FxHashSet<_> = copies::from_pageable(window).map(|item| window.simulation.items[item].span).collect();
    let is_other = |item: &Item| item.span.is_some() && (large.contains(&item.span) || uploads.contains(&item.span));
    let waits = window.calls().filter(|(index, item, call)| {
        item.waited() && !is_other(item) && (call.name().ends_with("Synchronize") || is_read(*index))
    });
    let groups = window.groups(waits.map(|(index, item, _)| (index, item.span, item.nanos())));
    let all: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let nanos = groups.iter().map(|group| group.nanos).sum();
    let Some(first) = groups.first() else { return Vec::new() };
    let mut costs = window.costs();
    for &item in &all {
        costs.do_not_wait(item);
        // A value that is not read need not be copied.
        if let Some(task) = window.task_of(item).filter(|_| is_read(item)) {
            costs.set_item(item, 0);
            costs.remove_task(task);
        }
    }
    let least = costs.clone();
    // Nor need it be computed.
    let spans = all.iter().filter_map(|&item| window.simulation.items[item].span);
    for item in readings(window, spans).iter().flat_map(|reading| reading.items(window)) {
        costs.set_item(item, 0);
        window.task_of(item).into_iter().for_each(|task| costs.remove_task(task));
    }
    let mut most = costs.clone();
    window.warm(&mut most, 0.75);
    let busy = total(window.tasks().map(|(_, _, work)| work.duration().as_nanos() as u64));
    if window.per_step(busy) as f64 >= BUSY * window.step.as_nanos() as f64 {
        window.warm(&mut costs, 0.8);
    }
    let often = words::times(all.len(), window.count());
    let mut evidence =
        vec![format!("The host waits {often} in a step, {} in all.", words::nanos(window.per_step(nanos)))];
    for group in groups.iter().take(3) {
        let call = |&index: &usize| window.simulation.items[index].call.map(|id| window.trace().api_call(id).name());
        let functions: SortedSet<_> = group.members.iter().filter_map(call).collect();
        evidence.push(format!(
            "{}: {} by {}.",
            words::place(window.trace(), group.span),
            words::nanos(window.per_step(group.nanos)),
            functions.into_iter().collect::<Vec<_>>().join(" and ")
        ));
    }
    let place = words::place(window.trace(), first.span);
    vec![Candidate {
        title: format!("the host waits for the GPU {often} in each step, the longest in {place}"),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        least: Some(least),
        most: Some(most),
        ..Candidate::new(FindingKind::HostSync, costs)
    }]
}

/// The most nanoseconds from a launch to its kernel on a GPU that is idle.
const LATENCY: i64 = 10_000;

/// Finds calls that allocate or free memory and wait for the GPU meanwhile.
pub(super) fn blocking_allocation(window: &Window<'_>) -> Vec<Candidate> {
    without(window, FindingKind::BlockingAllocation, is_allocation, |often, place| {
        format!("memory is allocated or freed {often} in each step without a pool, mostly in {place}")
    })
}

/// Finds calls that load kernels.
pub(super) fn kernel_loading(window: &Window<'_>) -> Vec<Candidate> {
    without(window, FindingKind::KernelLoading, is_load, |often, place| {
        format!("kernels are loaded or unloaded {often} in each step, in {place}")
    })
}

/// Finds out what a window takes without these calls.
fn without(
    window: &Window<'_>,
    kind: FindingKind,
    is_one: fn(ApiCall<'_>) -> bool,
    title: impl Fn(&str, &str) -> String,
) -> Vec<Candidate> {
    let found = window.calls().filter(|(_, _, call)| is_one(*call));
    let groups = window.groups(found.map(|(index, item, _)| (index, item.span, item.nanos())));
    let nanos = groups.iter().map(|group| group.nanos).sum();
    let Some(first) = groups.first().filter(|_| !window.is_negligible(nanos)) else { return Vec::new() };
    let all: Vec<usize> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let mut costs = window.costs();
    all.iter().for_each(|&item| costs.set_item(item, 0));
    // So does the time between two of them without anything else, as when an allocator frees all that it has.
    let mut sorted = all.clone();
    sorted.sort_unstable();
    for pair in sorted.windows(2).filter(|pair| pair[1] - pair[0] == 2) {
        let between = &window.simulation.items[pair[0] + 1];
        if between.call.is_none() && !between.waited() {
            costs.set_item(pair[0] + 1, 0);
        }
    }
    // While the driver maps memory or loads kernels, and just after, other work does not begin.
    costs.limit_launches(LATENCY);
    costs.limit_gaps(LATENCY);
    window.warm(&mut costs, 0.9);
    let often = words::times(all.len(), window.count());
    vec![Candidate {
        title: title(&often, &words::place(window.trace(), first.span)),
        span: first.span,
        evidence: vec![format!("These calls take {} of a step on the host.", words::nanos(window.per_step(nanos)))],
        ranges: window.item_ranges(&all),
        ..Candidate::new(kind, costs)
    }]
}

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
struct Reading {
    thread: ThreadId,
    start: Timestamp,
    end: Timestamp,
}

impl Reading {
    /// Returns the items in this time.
    fn items(&self, window: &Window<'_>) -> impl Iterator<Item = usize> {
        let items = &window.simulation.items;
        let from = items.partition_point(|item| (item.thread, item.start) < (self.thread, self.start));
        let inside = items[from..].iter().take_while(|item| item.thread == self.thread && item.end <= self.end);
        from..from + inside.count()
    }
}

/// Returns what is there only for reads in these spans.
fn readings(window: &Window<'_>, spans: impl Iterator<Item = SpanId>) -> Vec<Reading> {
    let trace = window.trace();
    let outermost = |id: SpanId| trace.span(id).stack().take_while(|span| is_one_of(*span, READS)).last();
    let mut reads: Vec<Span<'_>> = spans.filter_map(outermost).collect();
    reads.dedup_by_key(|read| read.id());
    if reads.is_empty() {
        return Vec::new();
    }
    // Operators next to each of them, in order of time.
    let mut siblings: FxHashMap<Option<SpanId>, Vec<Span<'_>>> = FxHashMap::default();
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
    let mut counts: FxHashMap<Vec<&str>, usize> = FxHashMap::default();
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
