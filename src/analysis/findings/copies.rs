//! Copies between the host and the GPU that cost more than they need to.

use super::{
    super::{
        finding::FindingKind,
        kinds::is_launch,
        simulation::{Costs, Item},
    },
    window::{Alternative, Candidate, Window, total},
    words::{self, owner},
};
use crate::trace::{Detail, Direction, Framework, MemoryCopy, MemoryKind, SpanId};
use rustc_hash::FxHashSet;

/// The least bytes of a large copy.
const LARGE: u64 = 1 << 20;
/// The most bytes of a small copy.
const TINY: u64 = 64 << 10;
/// The most bytes that Candle copies for a kernel over tensors that are not contiguous: the sizes and strides of two
/// tensors with eight dimensions.
const SHAPE: u64 = 3 * 8 * 8;
/// The number of small copies in a step that are many.
const MANY: usize = 8;
/// The bytes a second that a thread copies in memory, at the most: a server's core moves 10 to 20 GB.
const FASTEST_STAGING: f64 = 30e9;
/// The nanoseconds that the host takes to ask for a copy from page-locked memory.
const ASK: u64 = 5_000;

/// The part of a copy's time that a second stream hides at the least. In the training that was looked at, two thirds.
const LEAST_HIDDEN: f64 = 0.5;

/// Returns the copies of steps, each with the index of its task and the item that asked for it.
fn copies<'w>(window: &'w Window<'_>) -> impl Iterator<Item = (usize, usize, &'w MemoryCopy)> {
    window.tasks().filter_map(|(index, task, work)| match work.detail() {
        Detail::Copy(copy) => Some((index, task.item?, copy)),
        _ => None,
    })
}

/// Returns the tasks and items of large copies to the host.
pub(super) fn readbacks(window: &Window<'_>) -> impl Iterator<Item = (usize, usize)> {
    let large = copies(window).filter(|(_, _, copy)| copy.direction == Direction::DeviceToHost && copy.bytes >= LARGE);
    large.map(|(task, item, _)| (task, item))
}

/// Returns the items of copies to the GPU from memory that is not page-locked, but for tiny ones.
pub(super) fn from_pageable(window: &Window<'_>) -> impl Iterator<Item = usize> {
    copies(window).filter(|(_, _, copy)| is_pageable(copy)).map(|(_, item, _)| item)
}

fn is_pageable(copy: &MemoryCopy) -> bool {
    copy.direction == Direction::HostToDevice && copy.from == MemoryKind::Pageable && copy.bytes > TINY
}

/// Returns the item in which Burn's device thread copies a batch to page-locked memory, right before it asks for the
/// copy to the GPU.
pub(super) fn staging(window: &Window<'_>, item: usize, copy: &MemoryCopy) -> Option<usize> {
    let (before, items) = (item.checked_sub(1)?, &window.simulation.items);
    let is_copy = copy.direction == Direction::HostToDevice && copy.from == MemoryKind::Pinned && copy.bytes > TINY;
    let is_long = items[before].nanos() as f64 >= copy.bytes as f64 / FASTEST_STAGING * 1e9;
    let is_gap = items[before].call.is_none() && items[before].thread == items[item].thread;
    (window.framework == Framework::Burn && is_copy && is_gap && is_long).then_some(before)
}

/// Finds large results that are copied to the host in the step.
pub(super) fn large_readback(window: &Window<'_>) -> Vec<Candidate> {
    let found: Vec<_> = readbacks(window).collect();
    let spans: FxHashSet<_> = found.iter().map(|&(_, item)| window.simulation.items[item].span).collect();
    let nanos = |&(task, item): &(usize, usize)| {
        let task = &window.simulation.tasks[task];
        window.simulation.items[item].nanos().max(task.end.since(task.start).as_nanos() as u64)
    };
    let all = total(found.iter().map(nanos));
    let Some(&(_, first)) = found.iter().max_by_key(|copy| nanos(copy)).filter(|_| !window.is_negligible(all)) else {
        return Vec::new();
    };
    let mut costs = window.costs();
    for &(task, item) in &found {
        costs.remove_task(task);
        costs.set_item(item, 0);
    }
    // A wait for the copy goes with it, and so does what the host does with the result in the same span.
    let waits = window.calls().filter(|(_, item, _)| item.waited() && spans.contains(&item.span));
    waits.for_each(|(index, ..)| costs.do_not_wait(index));
    let least = costs.clone();
    let callsite = |span: Option<SpanId>| owner(window.trace(), span).map(|id| window.trace().span(id).callsite_id());
    let places: FxHashSet<_> = spans.iter().filter_map(|&span| callsite(span)).collect();
    let using = window.items().filter(|(_, item)| callsite(item.span).is_some_and(|place| places.contains(&place)));
    let launching = window.calls().filter(|(_, _, call)| is_launch(*call)).map(|(_, item, _)| callsite(item.span));
    // Where kernels are launched, too, the host does more than to use the result.
    if !launching.flatten().any(|place| places.contains(&place)) {
        using.filter(|(_, item)| item.call.is_none()).for_each(|(index, _)| costs.set_item(index, 0));
    }
    let bytes = total(found.iter().filter_map(|&(_, item)| window.copy_of(item)).map(|copy| copy.bytes));
    let span = window.simulation.items[first].span;
    let (tasks, items): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let each = words::bytes(window.per_step(bytes));
    vec![Candidate {
        title: format!("{each} are copied to the host in each step, in {}", words::place(window.trace(), span)),
        span,
        evidence: vec![
            format!(
                "{} copies in a step take {} on the GPU.",
                words::digits(tasks.len() as f64 / window.count() as f64),
                words::nanos(window.per_step(gpu_time(window, &tasks)))
            ),
            format!("The host is in their calls for {}.", words::nanos(window.per_step(host_time(window, &items)))),
        ],
        ranges: window.item_ranges(&items),
        least: Some(least),
        ..Candidate::new(FindingKind::LargeReadback, costs)
    }]
}

/// Finds copies to the GPU from memory that is not page-locked.
pub(super) fn pageable_copy(window: &Window<'_>) -> Vec<Candidate> {
    let staging = |item: usize, copy: &MemoryCopy| staging(window, item, copy);
    let is_slow = |item, copy: &MemoryCopy| is_pageable(copy) || staging(item, copy).is_some();
    let found: Vec<_> = copies(window).filter(|&(_, item, copy)| is_slow(item, copy)).collect();
    let items: Vec<usize> = found.iter().map(|&(_, item, copy)| staging(item, copy).unwrap_or(item)).collect();
    let tasks: Vec<usize> = found.iter().map(|&(task, ..)| task).collect();
    let spent = host_time(window, &items).max(gpu_time(window, &tasks));
    let Some(&(_, first, _)) = found.first().filter(|_| !window.is_negligible(spent)) else { return Vec::new() };
    let bandwidth = pinned_bandwidth(window);
    let with = |bytes_per_second: f64| {
        let mut costs = window.costs();
        for &(task, item, copy) in &found {
            let recorded = &window.simulation.tasks[task];
            let nanos = (copy.bytes as f64 / bytes_per_second * 1e9) as u64;
            costs.set_task(task, nanos.min(recorded.end.since(recorded.start).as_nanos() as u64));
            match staging(item, copy) {
                Some(gap) => costs.set_item(gap, 0),
                None => costs.set_item(item, ASK.min(window.simulation.items[item].nanos())),
            }
        }
        do_not_wait_in(window, &mut costs, &spans_of(window, &items));
        costs
    };
    let bytes = total(found.iter().map(|(_, _, copy)| copy.bytes));
    let span = window.simulation.items[first].span;
    let place = words::place(window.trace(), span);
    let each = words::bytes(window.per_step(bytes));
    let rate = bytes as f64 / host_time(window, &items).max(gpu_time(window, &tasks)).max(1) as f64;
    let again = FindingKind::SameBytesAgain.advice(window.framework);
    vec![Candidate {
        title: format!("{each} are copied to the GPU from pageable memory in each step, in {place}"),
        span,
        evidence: vec![
            format!(
                "The host is in these calls for {} a step.",
                words::nanos(window.per_step(host_time(window, &items)))
            ),
            format!(
                "They move {} GB a second; from page-locked memory it would be {}.",
                words::digits(rate),
                words::digits(bandwidth / 1e9)
            ),
        ],
        ranges: window.item_ranges(&items),
        least: Some(with(bandwidth / 2.0)),
        others: vec![Alternative {
            change: format!("If they are the same bytes in each step: {}", again.trim()),
            costs: without(window, &tasks, &items),
            least: None,
            most: None,
        }],
        ..Candidate::new(FindingKind::PageableCopy, with(bandwidth))
    }]
}

/// Returns the costs without these copies.
fn without(window: &Window<'_>, tasks: &[usize], items: &[usize]) -> Costs {
    let mut costs = window.costs();
    tasks.iter().for_each(|&task| costs.remove_task(task));
    items.iter().for_each(|&item| costs.set_item(item, 0));
    do_not_wait_in(window, &mut costs, &spans_of(window, items));
    costs
}

/// The innermost spans of these items.
fn spans_of(window: &Window<'_>, items: &[usize]) -> FxHashSet<SpanId> {
    items.iter().filter_map(|&item| window.simulation.items[item].span).collect()
}

/// Has calls in these spans wait for nothing.
fn do_not_wait_in(window: &Window<'_>, costs: &mut Costs, spans: &FxHashSet<SpanId>) {
    let waits = window.calls().filter(|(_, item, _)| item.waited() && item.span.is_some_and(|id| spans.contains(&id)));
    waits.for_each(|(index, ..)| costs.do_not_wait(index));
}

/// Small copies at one place.
pub(super) struct TinyCopies {
    span: Option<SpanId>,
    tasks: Vec<usize>,
    /// The items that would not be there if all were one copy: the calls but one in each step, and the time between.
    pub(super) items: Vec<usize>,
}

/// Returns the places at which many small copies are made.
pub(super) fn tiny(window: &Window<'_>) -> Vec<TinyCopies> {
    let is_shape = |bytes: u64| window.framework == Framework::Candle && bytes <= SHAPE && bytes.is_multiple_of(8);
    // The host waits for copies in the other direction, which is a problem of its own.
    let is_small =
        |copy: &MemoryCopy| copy.bytes <= TINY && copy.direction == Direction::HostToDevice && !is_shape(copy.bytes);
    let small = copies(window).filter(|(_, _, copy)| is_small(copy));
    let with_span = small.map(|(task, item, _)| {
        let recorded = &window.simulation.items[item];
        (task, owner(window.trace(), recorded.span), recorded.nanos())
    });
    let groups = window.groups(with_span);
    let many = groups.into_iter().filter(|group| group.members.len() >= MANY * window.count());
    let launches = |item: &Item| item.call.is_some_and(|id| is_launch(window.trace().api_call(id)));
    let tiny = many.map(|group| {
        let mut calls: Vec<usize> =
            group.members.iter().filter_map(|&task| window.simulation.tasks[task].item).collect();
        calls.sort_unstable();
        let mut items = Vec::new();
        for pair in calls.windows(2) {
            let all = &window.simulation.items;
            let between = pair[0] + 1..=pair[1];
            if (all[pair[0]].thread, all[pair[0]].step) != (all[pair[1]].thread, all[pair[1]].step) {
                continue;
            }
            // If the copies take turns with kernels, the time between serves both.
            if all[between.clone()].iter().any(launches) {
                items.push(pair[1]);
            } else {
                items.extend(between);
            }
        }
        TinyCopies { span: group.span, tasks: group.members, items }
    });
    tiny.collect()
}

/// Finds many small copies at one place.
pub(super) fn tiny_copies(window: &Window<'_>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for TinyCopies { span, tasks, items } in tiny(window) {
        let (gpu, host) = (gpu_time(window, &tasks), host_time(window, &items));
        if window.is_negligible(gpu.saturating_add(host)) {
            continue;
        }
        let mut costs = window.costs();
        for &item in &items {
            costs.set_item(item, 0);
            window.task_of(item).into_iter().for_each(|task| costs.remove_task(task));
        }
        let count = words::digits(tasks.len() as f64 / window.count() as f64);
        let copied = tasks.iter().filter_map(|&task| window.copy_of(window.simulation.tasks[task].item?));
        let bytes = total(copied.map(|copy| copy.bytes));
        let place = match span {
            Some(_) => format!(", in {}", words::place(window.trace(), span)),
            None => String::new(),
        };
        let mean = words::bytes(bytes / tasks.len().max(1) as u64);
        candidates.push(Candidate {
            title: format!("{count} copies of {mean} each are made in a step{place}"),
            span,
            evidence: vec![
                format!("The host takes {} a step to make them.", words::nanos(window.per_step(host))),
                format!("The GPU copies for {} a step.", words::nanos(window.per_step(gpu))),
            ],
            ranges: window.task_ranges(&tasks),
            ..Candidate::new(FindingKind::TinyCopies, costs)
        });
    }
    candidates
}

/// Finds large copies from page-locked memory that run while no kernel does, on a stream that has kernels.
pub(super) fn exposed_copy(window: &Window<'_>) -> Vec<Candidate> {
    let kernels: FxHashSet<_> = window
        .tasks()
        .filter(|(_, _, work)| work.kernel().is_some())
        .map(|(_, _, work)| (work.stream().device(), work.stream().context(), work.stream().number()))
        .collect();
    let could_overlap = |copy: &MemoryCopy| {
        let is_pinned = |kind| matches!(kind, MemoryKind::Pinned | MemoryKind::Managed);
        copy.bytes >= LARGE && copy.direction == Direction::HostToDevice && is_pinned(copy.from)
    };
    let found = copies(window).filter(|(_, _, copy)| could_overlap(copy)).filter(|&(task, ..)| {
        let stream = window.trace().work_of(window.simulation.tasks[task].work).stream();
        kernels.contains(&(stream.device(), stream.context(), stream.number()))
    });
    let found: Vec<_> = found.collect();
    let tasks: Vec<usize> = found.iter().map(|&(task, ..)| task).collect();
    let spent = gpu_time(window, &tasks);
    let Some(&(_, first, _)) = found.first().filter(|_| !window.is_negligible(spent)) else { return Vec::new() };
    let mut costs = window.costs();
    tasks.iter().for_each(|&task| costs.take_out_of_order(task));
    // Kernels take longer while a copy uses the memory, too.
    let mut least = window.costs();
    for &task in &tasks {
        let recorded = &window.simulation.tasks[task];
        least.set_task(task, (recorded.end.since(recorded.start).as_nanos() as f64 * (1.0 - LEAST_HIDDEN)) as u64);
    }
    let bytes = total(found.iter().map(|(_, _, copy)| copy.bytes));
    let span = window.simulation.items[first].span;
    let place = words::place(window.trace(), span);
    vec![Candidate {
        title: format!(
            "{} are copied to the GPU in each step while no kernel can run, in {place}",
            words::bytes(window.per_step(bytes))
        ),
        span,
        evidence: vec![format!(
            "The copies take {} of a step, on the stream of the kernels.",
            words::nanos(window.per_step(spent))
        )],
        ranges: window.task_ranges(&tasks),
        least: Some(least),
        ..Candidate::new(FindingKind::ExposedCopy, costs)
    }]
}

/// Bytes a second that copies from page-locked memory move: the fastest of the window, or else what the device's bus
/// can do.
fn pinned_bandwidth(window: &Window<'_>) -> f64 {
    let rates = window.all_tasks().filter_map(|(_, _, work)| match work.detail() {
        Detail::Copy(copy) if copy.from == MemoryKind::Pinned && copy.bytes >= LARGE => work.bytes_per_second(),
        _ => None,
    });
    let by_bus = || {
        let generation = window.trace().devices().first().map_or(0, |device| device.compute_capability.0);
        // PCI Express 5, 4 and 3 with 16 lanes, as copies of megabytes reach.
        if generation >= 9 {
            50e9
        } else if generation == 8 {
            24e9
        } else {
            12e9
        }
    };
    rates.max_by(f64::total_cmp).unwrap_or_else(by_bus)
}

/// The nanoseconds of tasks on the GPU.
fn gpu_time(window: &Window<'_>, tasks: &[usize]) -> u64 {
    let nanos = |&task: &usize| {
        let task = &window.simulation.tasks[task];
        task.end.since(task.start).as_nanos() as u64
    };
    total(tasks.iter().map(nanos))
}

/// The nanoseconds of items on the host.
fn host_time(window: &Window<'_>, items: &[usize]) -> u64 {
    total(items.iter().map(|&item| window.simulation.items[item].nanos()))
}
