//! Tests of the tables of memory peaks.

use super::{HighestPeaks, MemoryPeak, MemoryPeaks};
use crate::{
    report::MemoryOwner,
    trace::{
        CallsiteData, CallsiteId, DeviceId, MemoryChange, SpanData, SpanId, Trace,
        sample::{memory_trace, set_parent},
    },
};
use std::{slice, time::Duration};

const TRAIN_STEP: Option<usize> = Some(0);
const FORWARD: Option<usize> = Some(1);
const BACKWARD: Option<usize> = Some(2);
const MB: u64 = 1 << 20;

fn peaks(traces: &[Trace]) -> HighestPeaks {
    let mut peaks = HighestPeaks::default();
    traces.iter().for_each(|trace| peaks.add(trace));
    peaks
}

fn only(trace: Trace) -> MemoryPeak {
    peaks(&[trace]).get(DeviceId::new(0)).unwrap().clone()
}

fn owners(peak: &MemoryPeak) -> Vec<(String, u64, u64)> {
    let sum: u64 = peak.owners.iter().map(|owner| owner.bytes).sum();
    assert_eq!(peak.before + sum, peak.in_use, "the parts are the whole");
    let path = |owner: &MemoryOwner| [slice::from_ref(&owner.name), &owner.stack].concat().join(" < ");
    peak.owners.iter().map(|owner| (path(owner), owner.bytes, owner.allocations)).collect()
}

fn owner(path: &str, bytes: u64, allocations: u64) -> (String, u64, u64) {
    (path.to_owned(), bytes, allocations)
}

/// 100 MB from before; at the peak `forward` has 2 × 20 MB, `backward` 30 MB, nobody 5 MB.
fn step() -> Trace {
    memory_trace(&[
        (1, Some(20 * MB), 120 * MB, FORWARD),
        (2, Some(20 * MB), 140 * MB, FORWARD),
        (3, Some(10 * MB), 150 * MB, TRAIN_STEP),
        (3, None, 140 * MB, TRAIN_STEP),
        (4, Some(5 * MB), 145 * MB, None),
        (5, Some(30 * MB), 175 * MB, BACKWARD),
        (1, None, 155 * MB, BACKWARD),
        (6, Some(20 * MB), 175 * MB, TRAIN_STEP),
    ])
}

#[test]
fn owners_deep_in_recursion_have_short_stacks() {
    let mut trace = step();
    let span = trace.spans[0].clone();
    trace.spans.extend((0..500).map(|_| span.clone()));
    let first = trace.spans.len() - 500;
    (first + 1..first + 500).for_each(|span| set_parent(&mut trace, span, span - 1));
    for (index, allocation) in trace.allocations.iter_mut().enumerate() {
        allocation.span = Some(SpanId::new(first + 499 - index));
    }
    let peak = only(trace);
    assert!(peak.owners.iter().all(|owner| owner.stack.len() == 101), "{:?}", peak.owners);
    assert!(peak.owners.iter().any(|owner| owner.stack.last().unwrap() == "[399 more]"));
}

#[test]
fn the_peak_is_of_those_who_have_not_freed_theirs() {
    let peak = only(step());
    assert_eq!((peak.in_use, peak.before, peak.after), (175 * MB, 100 * MB, Duration::from_micros(5)));
    assert_eq!(
        owners(&peak),
        [
            owner("forward < train_step", 40 * MB, 2),
            owner("backward < train_step", 30 * MB, 1),
            owner("[unattributed]", 5 * MB, 1),
        ]
    );
}

#[test]
fn instances_of_spans_are_one_owner() {
    // Span 4 is the second `forward`.
    let peak = only(memory_trace(&[(1, Some(7), 7, FORWARD), (2, Some(8), 15, Some(4))]));
    assert_eq!((peak.before, owners(&peak)), (0, vec![owner("forward < train_step", 15, 2)]));
}

#[test]
fn memory_freed_without_its_size_being_known_is_from_before_the_window() {
    // Whatever was at 9 still counts.
    let peak = only(memory_trace(&[(9, None, 100, BACKWARD), (1, Some(10), 110, FORWARD)]));
    assert_eq!((peak.before, owners(&peak)), (100, vec![owner("forward < train_step", 10, 1)]));
    let peak = only(memory_trace(&[(9, None, 100, BACKWARD)]));
    assert_eq!((peak.before, owners(&peak)), (100, vec![]));
}

#[test]
fn an_address_that_is_given_out_again_has_its_last_owner() {
    // The 10 bytes of `forward` are still counted as in use, though they cannot be.
    let peak = only(memory_trace(&[(1, Some(10), 110, FORWARD), (1, Some(30), 140, BACKWARD)]));
    assert_eq!((peak.before, owners(&peak)), (110, vec![owner("backward < train_step", 30, 1)]));
}

#[test]
fn nobody_owns_more_than_there_is() {
    let peak = only(memory_trace(&[(1, Some(u64::MAX), 5, FORWARD), (2, Some(u64::MAX), 9, FORWARD)]));
    assert_eq!((peak.before, owners(&peak)), (0, vec![owner("forward < train_step", 9, 2)]));
}

#[test]
fn the_smallest_owners_are_not_told_apart() {
    let mut trace = memory_trace(&[]);
    let (callsite, span) = (trace.callsites[1].clone(), trace.spans[1].clone());
    let mut records = Vec::new();
    for bytes in 0..MemoryPeak::OWNERS as u64 + 5 {
        trace.callsites.push(CallsiteData { name: format!("layer {bytes}").into(), ..callsite.clone() });
        let callsite = CallsiteId::new(trace.callsites.len() - 1);
        trace.spans.push(SpanData { callsite, ..span.clone() });
        records.push((bytes, Some(bytes), bytes * (bytes + 1) / 2, Some(trace.spans.len() - 1)));
    }
    trace.allocations = memory_trace(&records).allocations;
    let owners = owners(&only(trace));
    assert_eq!(owners.len(), MemoryPeak::OWNERS + 1);
    assert_eq!(owners[0], owner("layer 1004 < train_step", 1004, 1));
    assert_eq!(owners[MemoryPeak::OWNERS], owner(MemoryOwner::OTHERS, 1 + 2 + 3 + 4, 5));
}

#[test]
fn a_line_says_whose_spans_have_the_most_wherever_they_are() {
    // `forward` twice, once outside of any step.
    let mut trace = memory_trace(&[(1, Some(3), 3, FORWARD), (2, Some(3), 6, Some(4)), (3, Some(4), 10, BACKWARD)]);
    trace.spans[4].parent = None;
    assert_eq!(only(trace.clone()).to_string(), "GPU 0 memory at its peak: 10 B; most: forward 6 B");
    trace.allocations.iter_mut().for_each(|allocation| allocation.change = MemoryChange::Free);
    assert_eq!(only(trace).to_string(), "GPU 0 memory at its peak: 10 B, 10 B of it from before the window");
}

#[test]
fn the_window_with_the_highest_peak_wins_device_by_device() {
    let mut windows = [10, 30, 20, 30].map(|bytes| memory_trace(&[(1, Some(bytes), bytes, Some(1))]));
    for (number, window) in windows.iter_mut().enumerate() {
        window.window = number as u32;
    }
    // The third has more on another device, at the same address.
    let mut other = windows[2].allocations[0].clone();
    (other.device, other.bytes, other.in_use, other.span) = (DeviceId::new(1), Some(50), 50, None);
    windows[2].allocations.push(other);
    let peaks = peaks(&windows);
    let seen: Vec<_> = peaks.iter().map(|peak| (peak.window, peak.to_string())).collect();
    let lines = [
        "GPU 0 memory at its peak: 30 B; most: forward 30 B",
        "GPU 1 memory at its peak: 50 B; most: [unattributed] 50 B",
    ];
    assert_eq!(seen, [(1, lines[0].to_owned()), (2, lines[1].to_owned())]);
}

#[test]
fn a_table_shows_who_had_what() {
    let peaks = peaks(&[memory_trace(&[
        (1, Some(20 * MB), 120 * MB, Some(1)),
        (2, Some(20 * MB), 140 * MB, Some(1)),
        (3, Some(5 * MB), 145 * MB, None),
        (4, Some(30 * MB), 175 * MB, Some(2)),
    ])]);
    assert_eq!(
        format!("\n{}", MemoryPeaks::new(&peaks).limit(2).width(120)),
        "
GPU 0 memory at its peak: 175 MiB, 100 MiB of it from before the window; most: forward 40.0 MiB
-----------------------------  ----------  --------  ----------  ----------------
Allocated by                   Inside      CUDA Mem  CUDA Mem %  # of Allocations
-----------------------------  ----------  --------  ----------  ----------------
[allocated before the window]               100 MiB      57.1 %                 –
forward                        train_step  40.0 MiB      22.9 %                 2
backward                       train_step  30.0 MiB      17.1 %                 1
-----------------------------  ----------  --------  ----------  ----------------
1 more row
"
    );
    assert_eq!(MemoryPeaks::new(&HighestPeaks::default()).to_string(), "no GPU memory was recorded\n");
}
