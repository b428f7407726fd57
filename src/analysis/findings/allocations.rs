//! Calls in the step that allocate memory without a pool, or load kernels.

use super::{
    super::{
        finding::FindingKind,
        functions::{is_allocation, is_load},
    },
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::ApiCall;

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
        kind,
        title: title(&often, &place::name(window.trace(), first.span)),
        span: first.span,
        evidence: vec![format!("These calls take {} of a step on the host.", words::nanos(window.per_step(nanos)))],
        ranges: window.item_ranges(&all),
        costs,
        least: None,
        most: None,
        others: Vec::new(),
    }]
}
