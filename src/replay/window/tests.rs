//! Tests that a window that was written to a file is read back unchanged.

use super::Window;
use crate::{
    recording::{Pool, RawRecords},
    replay::{origin, replay, tests::message},
    trace::{Metadata, MetricMeaning, Operation, OperationCall, Span, Step, Trace, Work, sample},
};
use prost::{Message, bytes::Bytes};
use std::{collections::HashMap, sync::Arc};

/// Returns a recorded window with operations: a batch of two for three launches, and a batch of one that launches
/// nothing.
fn operations_trace() -> Trace {
    let mut trace = replay(&*message()).unwrap();
    assert_eq!(trace.operations().len(), 0, "it is from before there were any");
    let matmul = Operation::new("matmul").with("op.flops", 64_u64).with("op.shape.lhs", "[8, 4]");
    let matmul = matmul.with("ratio", 0.5).with("exact", true).with("offset", -1_i64);
    let (matmul, add) = (Arc::new(matmul), Arc::new(Operation::new("add")));
    let launches = trace.api_calls().filter(|call| call.name() == "cuLaunchKernel");
    let launched: Vec<_> = launches.map(|call| (call.correlation(), 70_000)).take(3).collect();
    let operations = [(&matmul, Some(2), 70_000), (&add, Some(5), 70_000), (&add, None, 0), (&matmul, Some(2), 9)];
    sample::add_operations(&mut trace, &operations, &launched);
    trace
}

fn written(trace: &Trace) -> Vec<u8> {
    let before = Window::decode(Bytes::from(message())).unwrap();
    let raw = RawRecords { bytes: before.records.to_vec(), names: before.names };
    let reserved = |device| before.reserved.get(device).copied().unwrap_or(0);
    let pools = before.in_use.iter();
    let pools: HashMap<_, _> = pools.map(|(id, used)| (*id, Pool { reserved: reserved(id), used: *used })).collect();
    Window::of(trace, &raw, &pools).encode_to_vec()
}

/// The message of a recorded window with operations.
pub(in super::super) fn with_operations() -> Vec<u8> {
    written(&operations_trace())
}

/// Returns a description of each operation.
fn operations(trace: &Trace) -> Vec<String> {
    let describe = |call: OperationCall<'_>| {
        let fields: Vec<_> = call.fields().iter().collect();
        let owner = (call.span().map(Span::name), call.attribution(), call.step().map(Step::number));
        format!("{} {fields:?} {owner:?} {:?} {:?}", call.name(), call.at(), call.thread())
    };
    trace.operations().map(describe).collect()
}

fn done(trace: &Trace) -> Vec<(Vec<usize>, Vec<usize>)> {
    let done = |work: Work<'_>| {
        let operations = work.operations().map(|call| call.id().index()).collect();
        (operations, work.spans().map(|span| span.id().index()).collect())
    };
    trace.work().map(done).collect()
}

#[test]
fn a_window_that_is_written_again_has_the_same_bytes() {
    assert!(written(&replay(&*message()).unwrap()) == message());
    assert!(written(&replay(&*with_operations()).unwrap()) == with_operations());
}

#[test]
fn the_rank_and_the_run_come_back_as_they_were() {
    let mut trace = replay(&*message()).unwrap();
    assert_eq!((trace.metadata().rank, trace.metadata().world_size, &trace.metadata().run), (0, 1, &None));
    let run = Some("42 1".to_owned());
    trace.metadata = Arc::new(Metadata { rank: 3, world_size: 8, run, ..(*trace.metadata).clone() });
    let file = written(&trace);
    assert_eq!(replay(&*file).unwrap().metadata(), trace.metadata());
    assert_eq!(origin(&*file).unwrap(), (trace.metadata().clone(), trace.window(), trace.start()));
}

#[test]
fn operations_and_batches_come_back_as_they_were() {
    let (before, after) = (operations_trace(), replay(&*with_operations()).unwrap());
    assert_eq!(operations(&before), operations(&after));
    assert_eq!(done(&before), done(&after));
    assert_eq!(done(&before).iter().filter(|(operations, _)| *operations == [0, 1]).count(), 3);
    assert_eq!((after.operations.len(), after.operations().len()), (2, 4));
    assert_eq!(after.spans().len(), before.spans().len());
}

#[test]
fn a_reference_to_a_missing_operation_is_an_error() {
    let mut window = Window::decode(Bytes::from(with_operations())).unwrap();
    window.operations.truncate(1);
    assert!(replay(&*window.encode_to_vec()).is_err());
}

#[test]
fn calls_come_back_as_they_were() {
    let mut trace = replay(&*message()).unwrap();
    sample::set_previous(&mut trace, 5, 2);
    let after = replay(&*written(&trace)).unwrap();
    let previous = |trace: &Trace| trace.spans().map(|span| span.previous().map(Span::id)).collect::<Vec<_>>();
    assert_eq!(previous(&after), previous(&trace));
    assert_eq!(after.spans().filter(|span| span.previous().is_some()).count(), 1);
}

#[test]
fn callers_come_back_as_they_were() {
    let mut trace = replay(&*message()).unwrap();
    sample::set_caller(&mut trace, 0, Some(2));
    trace.spans[2].parent = None;
    sample::set_caller(&mut trace, 3, None);
    let after = replay(&*written(&trace)).unwrap();
    assert_eq!((after.callers.len(), &after.callers), (2, &trace.callers));
}

#[test]
fn causes_come_back_as_they_were_and_one_that_is_not_there_is_an_error() {
    let mut trace = replay(&*message()).unwrap();
    sample::set_follows(&mut trace, 3, &[0, 5]);
    let after = replay(&*written(&trace)).unwrap();
    assert_eq!((after.follows.len(), &after.follows), (1, &trace.follows));
    let mut window = Window::decode(Bytes::from(message())).unwrap();
    window.spans[3].follows = vec![0, u32::MAX];
    assert!(replay(&*window.encode_to_vec()).is_err());
}

#[test]
fn a_caller_that_is_not_there_and_a_circle_of_callers_are_errors() {
    for caller in [1, 2 + 1, u32::MAX] {
        let mut window = Window::decode(Bytes::from(message())).unwrap();
        assert_eq!(window.spans[2].parent, Some(0));
        window.spans[0].caller = Some(caller);
        assert!(replay(&*window.encode_to_vec()).is_err(), "{caller}");
    }
}

#[test]
fn an_enter_before_the_first_of_its_call_is_an_error() {
    for previous in [5, 6, u32::MAX] {
        let mut window = Window::decode(Bytes::from(message())).unwrap();
        window.spans[5].previous = Some(previous);
        assert!(replay(&*window.encode_to_vec()).is_err(), "{previous}");
    }
}

#[test]
fn hardware_counters_survive_a_round_trip_and_corrupted_ones_are_rejected() {
    let mut before = operations_trace();
    let metrics = [("sm", MetricMeaning::SmActive), ("custom", MetricMeaning::Custom)];
    sample::add_gpu_counters(&mut before, 0, &metrics, 40, &[&[12.5, 1e12], &[0.0, f64::MAX], &[99.0, 0.0]]);
    before.gpu_counters[0].lost = 7;
    before.gpu_counters[0].problem = Some("the buffer overflowed".to_owned());
    let after = replay(&*written(&before)).unwrap();
    assert_eq!(after.gpu_counters(), before.gpu_counters());
    assert_eq!(after.losses().gpu_counter_samples, 7);

    let corrupted: [fn(&mut Window); 4] = [
        |window| window.counters[0].values.truncate(1),
        |window| window.counters[0].gaps.truncate(1),
        |window| window.counters[0].durations[1] = u64::MAX,
        |window| window.counters[0].names.truncate(1),
    ];
    for corrupt in corrupted {
        let mut window = Window::decode(Bytes::from(written(&before))).unwrap();
        corrupt(&mut window);
        assert!(replay(&*window.encode_to_vec()).is_err());
    }
}
