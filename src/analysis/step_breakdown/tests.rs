//! Tests of the breakdown of steps.

use super::StepBreakdown;
use crate::{
    analysis::{Analysis, StepPart, StepParts, step_time::step_intervals},
    trace::{
        Api, ApiCall, ApiCallData, Attribution, CallsiteId, DeviceId, GpuProblem, Span, SpanId, Timestamp, Trace,
        TrackId, Work,
        sample::{at, awkward_trace, gpu_trace, kernel, operations_trace, remove_gpu, set_fields, spans_trace},
    },
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn step_breakdown(trace: &Trace) -> Vec<StepBreakdown<'_>> {
    Analysis::of(trace).step_breakdown().to_vec()
}

/// Checks that the parts are all time of each step, and that GPUs are as busy as elsewhere.
fn check(trace: &Trace) {
    let rows = step_breakdown(trace);
    for row in &rows {
        assert_eq!(row.parts.total(), row.duration, "{row:?}");
        assert_eq!(row.host_by_span.iter().map(|(_, time)| *time).sum::<Duration>(), row.parts.host);
        assert!(row.host_by_span.is_sorted_by(|a, b| a.1 >= b.1));
    }
    let window = Analysis::of(trace);
    let usages = window.gpu_steps();
    assert_eq!(rows.iter().filter(|row| row.device.is_some()).count(), usages.len());
    for (row, usage) in rows.iter().zip(usages) {
        assert_eq!((row.step, row.device, row.parts.busy()), (usage.step, Some(usage.device), usage.usage.busy));
    }
}

#[test]
fn parts_of_sample_traces_add_up() {
    for trace in [gpu_trace(), awkward_trace(), operations_trace(), Trace::default()] {
        check(&trace);
    }
    check(&spans_trace(&[("a", None, 0, 50), ("b", Some(0), 10, 20)]));
}

#[test]
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn parts_of_recorded_windows_add_up() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gpu");
    let mut steps = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let trace = crate::replay(std::fs::File::open(file.unwrap().path()).unwrap()).unwrap();
        check(&trace);
        steps += step_breakdown(&trace).len();
    }
    assert!(steps > 5, "{steps}");
}

#[test]
fn idle_time_is_what_the_thread_does_then() {
    let mut trace = gpu_trace();
    // In the first step: `backward` until 80, `train_step` until 90, and a wait for the GPU in that.
    add_call(&mut trace, "cuCtxSynchronize", 0, 82, 86);
    // On another thread.
    add_call(&mut trace, "cuStreamSynchronize", 1, 0, 5);
    let rows = step_breakdown(&trace);
    let expected = StepBreakdown {
        step: 5,
        device: Some(DeviceId::new(0)),
        duration: micros(100),
        on_host: micros(100),
        hidden: micros(54),
        parts: StepParts {
            compute: micros(50),
            exposed_copies: micros(4),
            synchronizing: micros(4),
            // Calls of the thread from 2 to 4, 17 to 19 and 47 to 49.
            launching: micros(6),
            host: micros(26),
            other: micros(10),
            ..StepParts::default()
        },
        host_by_span: vec![
            // 0 to 2, 4 to 5, 9 to 10, 80 to 82, 86 to 90.
            ("train_step", micros(10)),
            // 10 to 17, 19 to 20; 40 to 47, 49 to 50.
            ("backward", micros(8)),
            ("forward", micros(8)),
        ],
        ..StepBreakdown::default()
    };
    assert_eq!(rows[0], expected);
    assert_eq!(rows[1].parts.synchronizing, Duration::ZERO);
    check(&trace);
}

/// In each step, `backward` is open from 40 to 80 with a launch from 47 to 49, and the other thread launches a graph
/// from 57 to 59. The kernel that ran meanwhile runs at the end of the step instead.
fn trace_with_a_thread_that_works() -> Trace {
    let mut trace = gpu_trace();
    trace.work.retain(|work| work.start < at(50) || at(80) < work.start);
    add_span_of_other(&mut trace, 2, "MulBackward0");
    (trace.spans[6].start, trace.spans[6].end) = (at(52), at(66));
    trace
}

#[test]
fn a_thread_that_works_for_the_step_counts_while_the_step_waits_for_it() {
    let row = |trace: &Trace| {
        check(trace);
        let row = step_breakdown(trace).swap_remove(0);
        let of =
            |name| row.host_by_span.iter().find(|(span, _)| *span == name).map_or(Duration::ZERO, |(_, time)| *time);
        (row.parts.launching, of("backward"), of("MulBackward0"))
    };
    let trace = trace_with_a_thread_that_works();
    // 52 to 66, but for the launch, are the other thread's: `backward` enters and leaves nothing from 49 to 80.
    assert_eq!(row(&trace), (micros(8), micros(7 + 17), micros(12)));
    // The steps' thread works itself: it has a call of its own while the other thread launches.
    let mut own = trace.clone();
    add_call(&mut own, "cuEventRecord", 0, 56, 58);
    assert_eq!(row(&own), (micros(8), micros(7 + 29), micros(0)));
    // The other thread loads data in advance.
    let mut loads = trace.clone();
    set_fields(&mut loads, 6, &[("op.input", "load")]);
    assert_eq!(row(&loads), (micros(6), micros(7 + 31), micros(0)));
    // The other thread only copies.
    let mut copies = trace.clone();
    copies
        .api_calls
        .iter_mut()
        .filter(|call| call.track == TrackId::new(1))
        .for_each(|call| call.name = "cuMemcpy".into());
    assert_eq!(row(&copies), (micros(6), micros(7 + 31), micros(0)));
    // The other thread has steps of its own, so that it works for those.
    let mut steps = trace;
    steps.steps[1].track = TrackId::new(1);
    assert_eq!(row(&steps), (micros(6), micros(7 + 31), micros(0)));
}

#[test]
fn a_wait_of_the_thread_that_the_step_waits_for_is_synchronizing() {
    let mut trace = trace_with_a_thread_that_works();
    add_call(&mut trace, "cuStreamSynchronize", 1, 60, 65);
    assert_eq!(step_breakdown(&trace)[0].parts.synchronizing, micros(5));
    // While the steps' thread works itself, the other one may wait as it likes.
    add_call(&mut trace, "cuEventRecord", 0, 56, 58);
    assert_eq!(step_breakdown(&trace)[0].parts.synchronizing, Duration::ZERO);
}

#[test]
#[cfg(feature = "read")]
fn operators_of_the_autograd_thread_are_named() {
    let path = format!("{}/tests/fixtures/torch/transformer.pt.trace.json.gz", env!("CARGO_MANIFEST_DIR"));
    let trace = crate::read::read(path).unwrap().into_iter().next().unwrap();
    for row in step_breakdown(&trace) {
        let of = |part: &str| -> Duration {
            row.host_by_span.iter().filter(|(name, _)| name.contains(part)).map(|(_, time)| *time).sum()
        };
        // The steps' thread waits in `loss.backward()` for half of the step, which has no span of its own.
        assert!(of("ProfilerStep") < row.duration / 5, "{row:?}");
        assert!(of("Backward") > row.duration / 20, "{row:?}");
        assert!(row.parts.launching > row.duration / 8, "{row:?}");
    }
    check(&trace);
}

#[test]
fn input_comes_before_all_else_on_the_host() {
    let mut trace = gpu_trace();
    set_fields(&mut trace, 1, &[("op.input", "load")]);
    let row = &step_breakdown(&trace)[0];
    // `forward` from 10 to 20, with the launch of the kernel that follows.
    assert_eq!((row.parts.input, row.parts.launching), (micros(10), micros(4)));
    assert!(row.host_by_span.iter().all(|(name, _)| *name != "forward"));
    check(&trace);
}

#[test]
fn communication_is_exposed_where_nothing_computes() {
    let mut trace = gpu_trace();
    let mut work = trace.work[1].clone();
    (work.detail, work.start, work.end) = (kernel("ncclDevKernel_AllReduce"), at(75), at(95));
    trace.work.push(work);
    let row = &step_breakdown(&trace)[0];
    assert_eq!(
        (row.parts.compute, row.parts.exposed_communication, row.parts.other),
        (micros(50), micros(15), micros(5))
    );
    check(&trace);
}

#[test]
fn without_a_gpu_all_time_is_the_hosts() {
    let mut trace = gpu_trace();
    remove_gpu(&mut trace, GpuProblem::NoDevice);
    trace.api_calls.clear();
    let rows = step_breakdown(&trace);
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0].device, rows[0].parts.host, rows[0].parts.other), (None, micros(90), micros(10)));
    check(&trace);
}

/// Returns the name of the part that a moment belongs to, by definition. The GPU is the first, the steps' thread has
/// the first track, and the one that works for it the second.
fn part_at(trace: &Trace, moment: Timestamp) -> &str {
    let is_at = |start: Timestamp, end: Timestamp| start <= moment && moment < end;
    let work: Vec<_> = trace.work().filter(|work| is_at(work.start(), work.end())).collect();
    let is_nccl = |work: &Work<'_>| work.name().to_string().starts_with("nccl");
    let spans_of = |track: usize| {
        let of_track = trace.spans().filter(move |span| span.track_id() == TrackId::new(track));
        of_track.filter(move |span| is_at(span.start(), span.end())).collect::<Vec<_>>()
    };
    let calls_of = |track: usize| {
        let of_track = trace.api_calls().filter(move |call| call.track_id() == TrackId::new(track));
        of_track.filter(move |call| is_at(call.start(), call.end())).map(ApiCall::name).collect::<Vec<_>>()
    };
    let (spans, calls) = (spans_of(0), calls_of(0));
    let is_input = |spans: &[Span<'_>]| spans.iter().any(|span| span.input_stage().is_some());
    let (of_other, calls_of_other) =
        if is_input(&spans_of(1)) { Default::default() } else { (spans_of(1), calls_of(1)) };
    let working = if is_awaited(trace, moment) && !of_other.is_empty() { &of_other } else { &spans };
    match () {
        () if work.iter().any(|work| work.kernel().is_some() && !is_nccl(work)) => "compute",
        () if work.iter().any(is_nccl) => "communication",
        () if !work.is_empty() => "copies",
        () if is_queued(trace, moment) => "between kernels",
        () if is_input(&spans) => "input",
        () if calls.iter().any(|name| name.contains("Synchronize")) => "synchronizing",
        () if !calls.is_empty() || !calls_of_other.is_empty() => "launching",
        () => working.iter().max_by_key(|span| (span.start(), span.id())).map_or("other", |span| span.name()),
    }
}

/// Whether the GPU, which is idle at this moment, had been asked for its next work before it became idle.
fn is_queued(trace: &Trace, moment: Timestamp) -> bool {
    let work = || trace.work().filter(|work| work.start() < work.end());
    let began = work().map(Work::end).filter(|end| *end <= moment).max().unwrap_or_default();
    let next = work().map(Work::start).filter(|start| *start > moment).min();
    let next = work().filter(|work| Some(work.start()) == next);
    let requested = next.filter_map(|work| Some(work.call()?.end())).min();
    requested.is_some_and(|requested| requested <= began)
}

/// Whether the steps' thread is in no call, and neither enters nor leaves anything around this moment while the other
/// thread launches work.
fn is_awaited(trace: &Trace, moment: Timestamp) -> bool {
    let main = TrackId::new(0);
    let spans = trace.spans().filter(|span| span.track_id() == main).map(|span| [span.start(), span.end()]);
    let calls: Vec<_> = trace.api_calls().filter(|call| call.track_id() == main).collect();
    let steps = trace.steps().iter().map(|step| [step.start(), step.end()]);
    let edges = spans.chain(calls.iter().map(|call| [call.start(), call.end()])).chain(steps).flatten();
    let edges: Vec<_> = edges.collect();
    let gap = |at: Timestamp| {
        let start = edges.iter().filter(|edge| **edge <= at).max()?;
        Some((*start, *edges.iter().filter(|edge| **edge > at).min()?))
    };
    let is_in_call = calls.iter().any(|call| call.start() <= moment && moment < call.end());
    let mut launches = trace.api_calls().filter(|call| call.track_id() != main);
    let is_in = |call: ApiCall<'_>| gap(call.start()).filter(|(_, end)| call.end() <= *end) == gap(moment);
    !is_in_call && gap(moment).is_some() && launches.any(is_in)
}

proptest! {
    #[test]
    fn each_moment_is_counted_by_what_happens_then(
        times in prop::collection::vec((0_u64..210, 0_u64..60), 40),
        kinds in prop::collection::vec(0..3_usize, 11),
    ) {
        let mut trace = gpu_trace();
        let mut times = times.into_iter().map(|(start, length)| (at(start), at(start + length)));
        set_fields(&mut trace, 4, &[("op.input", "read")]);
        add_call(&mut trace, "cuEventSynchronize", 0, 1, 2);
        for (span, name) in [(1, "of other thread"), (2, "loads in advance")] {
            add_span_of_other(&mut trace, span, name);
        }
        set_fields(&mut trace, 7, &[("op.input", "read")]);
        trace.spans.iter_mut().for_each(|span| (span.start, span.end) = times.next().unwrap());
        trace.api_calls.iter_mut().for_each(|call| (call.start, call.end) = times.next().unwrap());
        for (work, kind) in trace.work.iter_mut().zip(kinds) {
            (work.start, work.end) = times.next().unwrap();
            // Some stay copies and fills.
            if let Some(name) = ["ncclDevKernel_AllGather", "gemm"].get(kind) {
                work.detail = kernel(name);
            }
        }
        for (step, row) in step_intervals(&trace).iter().zip(step_breakdown(&trace)) {
            let mut expected: BTreeMap<&str, Duration> = BTreeMap::new();
            for micro in 0..step.time().as_micros() as u64 {
                *expected.entry(part_at(&trace, step.start + micros(micro))).or_default() += micros(1);
            }
            let parts = row.parts.iter().filter(|(part, _)| *part != StepPart::Host);
            let parts = parts.map(|(part, time)| (part.as_str(), time));
            let seen = parts.chain(row.host_by_span.clone()).filter(|(_, time)| !time.is_zero());
            prop_assert_eq!(seen.collect::<BTreeMap<_, _>>(), expected);
            prop_assert_eq!(row.parts.total(), row.duration);
        }
    }
}

/// Adds a call that asks for nothing.
fn add_call(trace: &mut Trace, name: &str, track: usize, start: u64, end: u64) {
    trace.api_calls.push(ApiCallData {
        api: Api::CudaDriver,
        function: 1,
        name: Arc::from(name),
        track: TrackId::new(track),
        start: at(start),
        end: at(end),
        correlation: 5000,
        result: 0,
        attribution: Attribution::Direct,
        span: Some(SpanId::new(0)),
        batch: None,
    });
}

/// Adds a copy of a span on the thread that works for the steps', as the last span.
fn add_span_of_other(trace: &mut Trace, span: usize, name: &str) {
    let mut callsite = trace.callsites[0].clone();
    callsite.name = name.to_owned().into();
    trace.callsites.push(callsite);
    let mut span = trace.spans[span].clone();
    (span.callsite, span.track) = (CallsiteId::new(trace.callsites.len() - 1), TrackId::new(1));
    span.parent = None;
    trace.spans.push(span);
}
