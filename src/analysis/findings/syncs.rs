//! The host waits for the GPU in the step.

use super::{
    super::{finding::FindingKind, simulation::Item},
    copies, place, reads,
    window::{Candidate, Window, total},
    words,
};
use crate::trace::Direction;
use std::collections::{BTreeSet, HashSet};

/// The part of a step in which the GPU is busy, from which on the host is not far from being ahead of it. If it is busy
/// for less, waits are short, and the host takes as long without them.
const BUSY: f64 = 0.5;

/// Finds calls that wait for the GPU: synchronisations, and copies of small results to the host.
pub(super) fn host_sync(window: &Window<'_>) -> Vec<Candidate> {
    // A wait in the span of a large copy to the host is for that copy, which is a problem of its own.
    let large: HashSet<_> = copies::readbacks(window).map(|(_, item)| window.simulation.items[item].span).collect();
    let is_read = |item| window.copy_of(item).is_some_and(|copy| copy.direction == Direction::DeviceToHost);
    // So is one in the operation that copies from pageable memory.
    let uploads: HashSet<_> = copies::from_pageable(window).map(|item| window.simulation.items[item].span).collect();
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
    for item in reads::readings(window, spans).iter().flat_map(|reading| reading.items(window)) {
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
        let functions: BTreeSet<_> = group.members.iter().filter_map(call).collect();
        evidence.push(format!(
            "{}: {} by {}.",
            place::name(window.trace(), group.span),
            words::nanos(window.per_step(group.nanos)),
            functions.into_iter().collect::<Vec<_>>().join(" and ")
        ));
    }
    let place = place::name(window.trace(), first.span);
    vec![Candidate {
        kind: FindingKind::HostSync,
        title: format!("the host waits for the GPU {often} in each step, the longest in {place}"),
        span: first.span,
        evidence,
        ranges: window.item_ranges(&all),
        costs,
        least: Some(least),
        most: Some(most),
        others: Vec::new(),
    }]
}
