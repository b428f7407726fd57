//! Any sequence of allocations and frees, however contradictory, is counted as a simple model counts it.
//!
//! A lost record makes a recording contradict itself: an address is allocated twice, or freed twice, or was never
//! allocated. Corrupted ones have sizes and addresses that no GPU has.

use super::read_back;
use crate::{
    Report,
    analysis::{MemoryBlock, MemoryTimeline, MemoryUse, kept_memory},
    correlate::join_gpu,
    recording::{GpuRecording, Pool},
    trace::{
        Allocation, AllocationData, Attribution, DeviceId, MemoryChange, SpanId, Timestamp, Trace, TrackId,
        sample::{at, gpu_trace},
    },
};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// A record: the microsecond, the context, the address, the bytes of an allocation and the span.
type Change = (u64, u32, u64, Option<u64>, Option<usize>);

/// Few addresses and times, so that they meet, and the ends of the address space.
fn changes() -> impl Strategy<Value = Vec<Change>> {
    let address = prop_oneof![8 => (0_u64..6).prop_map(|it| it * 512), 1 => (0_u64..3).prop_map(|it| u64::MAX - it)];
    let bytes = prop_oneof![
        1 => Just(0),
        8 => 1_u64..5_000,
        1 => (40_u32..63).prop_map(|power| 1 << power),
        1 => (0_u64..3).prop_map(|it| u64::MAX - it),
    ];
    let change = (0_u64..300, 0_u32..3, address, prop::option::weighted(0.6, bytes), prop::option::of(0_usize..6));
    prop::collection::vec(change, 0..60)
}

fn trace_of(changes: &[Change], pools: [u64; 2]) -> Trace {
    let mut trace = gpu_trace();
    let data = |&(micros, context, address, bytes, span): &Change| AllocationData {
        at: at(micros),
        context,
        device: DeviceId::new(0),
        address,
        bytes,
        change: if bytes.is_some() { MemoryChange::Allocate } else { MemoryChange::Free },
        pooled: true,
        by_framework: false,
        in_use: 0,
        reserved: 0,
        track: TrackId::new(0),
        attribution: if span.is_some() { Attribution::Direct } else { Attribution::Unattributed },
        span: span.map(SpanId::new),
    };
    trace.allocations = changes.iter().map(data).collect();
    let requested = vec![Timestamp::default(); trace.api_calls.len()];
    let pool = |device: u32| (device, Pool { used: pools[device as usize], reserved: 0 });
    let recording = GpuRecording {
        gpu: trace.gpu.clone(),
        devices: trace.devices.clone().into(),
        pools: [pool(0), pool(1)].into_iter().collect::<HashMap<_, _>>(),
        // The third context is of an unknown device, and so of the first.
        contexts: [(0, 0), (1, 1)].into_iter().collect(),
        ..GpuRecording::default()
    };
    join_gpu(&mut trace, recording, requested);
    trace
}

/// What a device has after each of its changes: the bytes of the change and those in use.
fn model(changes: &[Change], device: u32, pool: u64) -> Vec<(Option<u64>, u64)> {
    let mut changes: Vec<_> = changes.iter().filter(|change| change.1 % 2 == device).collect();
    changes.sort_by_key(|change| change.0);
    let (mut live, mut used) = (BTreeMap::new(), pool);
    let mut after = |&&(_, _, address, bytes, _): &&Change| match bytes {
        Some(bytes) => {
            live.insert(address, bytes);
            used = used.saturating_add(bytes);
            (Some(bytes), used)
        }
        None => {
            let bytes = live.remove(&address);
            used = used.saturating_sub(bytes.unwrap_or(0));
            (bytes, used)
        }
    };
    changes.iter().map(&mut after).collect()
}

fn of(trace: &Trace, device: u32) -> impl Iterator<Item = Allocation<'_>> {
    trace.allocations().filter(move |it| it.device().as_u32() == device)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn contradictory_allocations_are_counted_as_a_model_does(
        changes in changes(),
        pools in prop::array::uniform2(prop_oneof![4 => 0_u64..10_000, 1 => Just(u64::MAX)]),
    ) {
        let trace = trace_of(&changes, pools);
        let report = Report::of([&trace]);
        for device in [0, 1] {
            let expected = model(&changes, device, pools[device as usize]);
            let counted: Vec<_> = of(&trace, device).map(|it| (it.bytes(), it.in_use())).collect();
            prop_assert_eq!(&counted, &expected);
            prop_assert!(of(&trace, device).all(|it| it.reserved() >= it.in_use()));

            let peak = expected.iter().map(|it| it.1).max();
            let timeline = MemoryTimeline::of(&trace, DeviceId::new(device));
            prop_assert_eq!(timeline.as_ref().map(|it| it.peak().in_use()), peak);
            let Some((timeline, end)) = timeline.zip(expected.last()) else { continue };
            prop_assert!(timeline.peak().in_use() >= end.1);
            prop_assert_eq!(timeline.points().last().map(MemoryUse::in_use), Some(end.1));
            let sum = |blocks: &mut dyn Iterator<Item = u64>| blocks.fold(0_u64, u64::saturating_add);
            let allocated = changes.iter().filter(|it| it.1 % 2 == device).filter_map(|it| it.3);
            let allocated = sum(&mut allocated.clone());
            prop_assert_eq!(sum(&mut timeline.blocks().iter().map(MemoryBlock::bytes)), allocated);
            prop_assert_eq!(sum(&mut timeline.lifetimes().iter().map(|it| it.bytes)), allocated);
            prop_assert!(timeline.blocks().iter().all(|it| it.end().is_none_or(|end| end >= it.allocated.at())));

            let peaks = report.memory();
            let peak = peaks.peaks().find(|peak| peak.device == DeviceId::new(device)).unwrap();
            prop_assert_eq!(peak.in_use, timeline.peak().in_use());
            let owned = peak.owners.iter().fold(peak.before, |sum, owner| sum.saturating_add(owner.bytes));
            prop_assert_eq!(owned, peak.in_use);
        }
        let (kept, watched) = kept_memory(&trace);
        prop_assert!(kept.iter().all(|it| it.steps >= 1 && it.steps <= watched && it.allocations >= it.steps));
        let kept = kept.iter().fold(0_u64, |sum, it| sum.saturating_add(it.bytes));
        prop_assert!(kept <= changes.iter().fold(0_u64, |sum, it| sum.saturating_add(it.3.unwrap_or(0))));
    }

    #[test]
    fn contradictory_allocations_are_the_same_in_a_file(changes in changes(), pool in 0_u64..10_000) {
        let trace = trace_of(&changes, [pool, pool]);
        let back = read_back(&trace);
        let all = |trace: &Trace| -> Vec<_> {
            // Readers of Kineto's files expect a signed number.
            let bytes = |it: Allocation<'_>| it.bytes().map(|bytes| bytes.min(i64::MAX as u64));
            let span = |it: Allocation<'_>| it.span().map(|span| span.name().to_owned());
            let of = |it: Allocation<'_>| (it.device(), it.address(), it.change(), bytes(it), it.in_use(), span(it));
            trace.allocations().map(of).collect()
        };
        prop_assert_eq!(all(&trace), all(&back));
    }
}
