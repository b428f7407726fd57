//! Tests of memory by category, and of lifetimes.

use super::{MemoryTimeline, MemoryUse};
use crate::{
    analysis::MemoryCategory::{self, *},
    trace::{
        Allocation, MemoryKind, Trace,
        sample::{GpuTrace, at, memory_trace, remove_steps},
    },
};
use std::{num::NonZeroU64, time::Duration};

/// Two steps with 1000 bytes from before. Each byte count is unique within a step.
fn training() -> Trace {
    let mut program = GpuTrace::default();
    program.memory_before(1000);
    for step in 0..2_u64 {
        program.step(|program| {
            program.span("data", |program| {
                program.take(1, 10);
            });
            program.span("forward", |program| {
                program.take(2, 640).upload(MemoryKind::Pageable, 200, 5).take(3, 20).drop(3).take(4, 30);
                if step == 0 {
                    program.take(5, 7);
                }
            });
            program.span("backward", |program| {
                program.take(6, 40).drop(4).take(7, 50).drop(6);
            });
            program.span("optimizer", |program| {
                program.take(8, 60).take(9 + step, 5).drop(8);
            });
            program.drop(1).drop(2).drop(7);
        });
    }
    program.trace()
}

fn only(trace: &Trace) -> MemoryTimeline<'_> {
    let mut all = MemoryTimeline::of_all(trace);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn batch(size: u64) -> NonZeroU64 {
    NonZeroU64::new(size).unwrap()
}

#[test]
fn spans_and_lifetimes_tell_the_category() {
    let trace = training();
    let timeline = only(&trace);
    let categories: Vec<_> = timeline.blocks().iter().map(|block| (block.bytes(), block.category)).collect();
    let first = [
        (10, Inputs),
        // The copy has 200 bytes: it fills this memory only in part, so the memory is not known to be an input.
        (640, Activations),
        (20, Temporaries),
        (30, Activations),
        (7, Parameters),
        (40, Temporaries),
        (50, Gradients),
        (60, OptimizerTemporaries),
        (5, OptimizerState),
    ];
    assert_eq!(categories[..9], first);
    let second: Vec<_> = first.into_iter().filter(|(bytes, _)| *bytes != 7).collect();
    assert_eq!(categories[9..], second);
}

#[test]
fn memory_that_a_copy_from_the_host_fills_is_an_input() {
    let category = |bytes: u64, copied: u64| {
        let mut program = GpuTrace::default();
        program.span("forward", |program| {
            program.take(1, bytes).upload(MemoryKind::Pinned, copied, 5).take(2, 1);
        });
        let trace = program.trace();
        only(&trace).blocks()[0].category
    };
    assert_eq!((category(1024, 1024), category(1024, 513)), (Inputs, Inputs), "rounded up to a multiple of 512");
    assert_eq!(
        (category(1024, 512), category(1024, 1025), category(1000, 999)),
        (Activations, Activations, Activations)
    );
}

#[test]
fn an_optimizer_that_allocates_nothing_still_ends_the_backward_pass() {
    let mut program = GpuTrace::default();
    program.step(|program| {
        program.span("forward", |program| _ = program.take(1, 1));
        program.span("backward", |program| _ = program.take(2, 2).take(3, 3));
        // Between the passes of one step, when gradients are accumulated.
        program.drop(3);
        program.span("forward", |program| _ = program.take(4, 4));
        program.span("backward", |program| _ = program.take(5, 5).drop(5).drop(4));
        program.span("optimizer", |program| _ = program.host(3));
        program.drop(2).drop(1);
    });
    let trace = program.trace();
    let categories: Vec<_> = only(&trace).blocks().iter().map(|block| block.category).collect();
    assert_eq!(categories, [Activations, Gradients, Temporaries, Activations, Temporaries]);
}

#[test]
fn categories_add_up_to_the_memory_in_use() {
    let trace = training();
    let timeline = only(&trace);
    let sums: Vec<_> = timeline.points().iter().map(MemoryUse::in_use).collect();
    let in_use: Vec<_> = trace.allocations().map(Allocation::in_use).collect();
    assert_eq!(sums, in_use);
    let peak = timeline.peak();
    assert_eq!(Some(peak.in_use()), in_use.iter().copied().max());
    // The second step has the state of both optimizers.
    assert_eq!((peak.of(Before), peak.of(OptimizerState), peak.of(Parameters)), (1000, 10, 7));
    let parts: u64 = peak.categories().map(|(_, bytes)| bytes).sum();
    assert_eq!(parts, peak.in_use());
}

#[test]
fn without_steps_phases_still_tell_the_category() {
    let mut trace = training();
    remove_steps(&mut trace);
    let timeline = only(&trace);
    let of = |bytes| timeline.blocks().iter().find(|block| block.bytes() == bytes).unwrap().category;
    assert_eq!(
        [20, 30, 7, 50, 60, 5].map(of),
        [Temporaries, Activations, Activations, Gradients, OptimizerTemporaries, OptimizerState]
    );
}

#[test]
fn memory_without_a_span_is_unknown_and_contradictions_stay_within_what_is_in_use() {
    // The second allocation of an address without a free, a free of nothing, and fewer bytes in use than allocated.
    let records =
        [(1, Some(100), 150, None), (1, Some(10), 160, Some(1)), (2, None, 160, Some(1)), (3, Some(50), 40, None)];
    let trace = memory_trace(&records);
    let timeline = only(&trace);
    let uses: Vec<_> = timeline.points().iter().map(|point| (point.of(Unknown), point.of(Before))).collect();
    assert_eq!(uses, [(100, 50), (0, 150), (0, 150), (30, 0)]);
    assert_eq!(timeline.peak().in_use(), 160);
    assert_eq!(timeline.blocks()[0].lifetime(), Some(Duration::from_micros(1)), "until the address is used again");
    assert!(MemoryTimeline::of_all(&Trace::default()).is_empty());
    assert!(MemoryTimeline::of(&trace, crate::trace::DeviceId::new(1)).is_none());
}

#[test]
fn a_long_timeline_has_few_points_and_the_peak() {
    let records: Vec<_> = (0..10_007).map(|it| (it, Some(1), if it == 7_777 { 99_999 } else { it }, Some(1))).collect();
    let trace = memory_trace(&records);
    let timeline = only(&trace);
    assert!((500..=MemoryTimeline::POINTS).contains(&timeline.points().len()), "{}", timeline.points().len());
    assert_eq!(timeline.peak().in_use(), 99_999);
    assert_eq!(timeline.peak().after(), at(7_777).since(at(0)));
    assert!(timeline.points().contains(&timeline.peak()));
}

#[test]
fn lifetimes_are_counted_by_powers_of_ten() {
    let mut trace = memory_trace(&[]);
    let nanos = [9_999, 10_000, 99_999, 1_000_000_000, 5_000_000_000];
    let mut records: Vec<_> = (0..6).map(|address| (address, Some(1 << address), 0, Some(1))).collect();
    records.extend((0..5).map(|address| (address, None, 0, Some(1))));
    trace.allocations = memory_trace(&records).allocations;
    for (index, nanos) in nanos.into_iter().enumerate() {
        trace.allocations[6 + index].at = trace.allocations[index].at + Duration::from_nanos(nanos);
    }
    let found: Vec<_> = only(&trace).lifetimes().iter().map(|it| (it.to_string(), it.allocations, it.bytes)).collect();
    let expected = [
        ("less than 10.0 µs", 1, 1),
        ("10.0 µs to 100 µs", 2, 6),
        ("100 µs to 1.00 ms", 0, 0),
        ("1.00 ms to 10.0 ms", 0, 0),
        ("10.0 ms to 100 ms", 0, 0),
        ("100 ms to 1.00 s", 0, 0),
        ("1.00 s or more", 2, 24),
        ("still in use", 1, 32),
    ];
    assert_eq!(found, expected.map(|(name, count, bytes)| (name.to_owned(), count, bytes)));
}

#[test]
fn the_peak_at_another_batch_size_may_be_at_another_moment() {
    let mut program = GpuTrace::default();
    program.memory_before(100);
    program.step(|program| {
        program.span("forward", |program| _ = program.take(1, 50));
        program.span("backward", |program| _ = program.drop(1).take(2, 70));
        program.span("optimizer", |program| _ = program.host(1));
        program.drop(2);
    });
    let trace = program.trace();
    let timeline = only(&trace);
    assert_eq!((timeline.peak().in_use(), timeline.peak().of(Gradients)), (170, 70));
    let estimate = |recorded, size| timeline.estimated_peak(batch(recorded), batch(size));
    assert_eq!(estimate(32, 32).in_use(), timeline.peak().in_use());
    let double = estimate(32, 64);
    assert_eq!((double.in_use(), double.of(Activations), double.of(Before)), (200, 100, 100));
    assert_eq!(estimate(3, 1).in_use(), 170);
    assert_eq!(estimate(1, u64::MAX).in_use(), u64::MAX, "no overflow");
}

#[test]
fn the_order_of_categories_is_that_of_their_indices() {
    assert!(MemoryCategory::ALL.iter().enumerate().all(|(index, category)| *category as usize == index));
}
