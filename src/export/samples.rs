//! Traces of GPUs that exporters are tested with. The files are left under `target/tmp`, for other readers to look at.

use super::{Chrome, Exporter, Perfetto, Stacks, ranges};
use crate::trace::{
    Api, ApiCallData, ApiCallId, Attribution, Detail, DeviceId, MemoryChange, Metadata, Overhead, SpanId, StepId,
    Stream, StreamId, Timestamp, Trace, TrackId, WaitData, WaitKind,
    sample::{at, gpu_trace, h200},
};
use std::{path::PathBuf, sync::Arc, time::Instant};

/// The sample, with whatever else could go wrong: a container's first process and two GPUs, contexts that number their streams
/// alike, waits that cross, a call that failed, memory of unknown size, names that need care.
pub(super) fn awkward_trace() -> Trace {
    let mut trace = gpu_trace();
    trace.metadata = Arc::new(Metadata { pid: 1, rank: 3, world_size: 8, ..(*trace.metadata).clone() });
    let mut second = h200();
    second.id = DeviceId::new(1);
    trace.devices.push(second);
    for (device, context) in [(0, 2), (1, 3)] {
        let stream = StreamId::new(trace.streams.len());
        trace.streams.push(Stream { device: DeviceId::new(device), context, number: 7, overlap: 0 });
        let mut work = trace.work[1].clone();
        work.stream = stream;
        (work.call, work.correlation, work.span, work.step) = (None, 0, None, None);
        work.attribution = Attribution::Unattributed;
        trace.work.push(work);
    }
    let wait = trace.waits[0].clone();
    let more = [
        (WaitKind::Context, Some(0), None, None, 85, 95),
        (WaitKind::Stream, Some(0), Some(7), None, 84, 92),
        (WaitKind::StreamForEvent, Some(1), Some(7), Some(5), 20, 21),
        (WaitKind::Event, None, None, Some(6), 20, 30),
    ];
    for (kind, device, stream, event, start, end) in more {
        let (device, start, end) = (device.map(DeviceId::new), at(start), at(end));
        trace.waits.push(WaitData { kind, device, stream, event, start, end, ..wait.clone() });
    }
    trace.overheads.push(Overhead { name: "Instrumentation", thread: None, start: at(197), end: at(201) });
    trace.api_calls.insert(
        0,
        ApiCallData {
            api: Api::CudaRuntime,
            function: 13,
            name: Arc::from("cudaLaunchKernel"),
            track: TrackId::new(0),
            start: at(0),
            end: at(2),
            correlation: 77,
            result: 700,
            attribution: Attribution::Direct,
            span: Some(SpanId::new(0)),
        },
    );
    for work in &mut trace.work {
        work.call = work.call.map(|call| ApiCallId::new(call.index() + 1));
    }
    trace.allocations[3].bytes = None;
    trace.allocations[3].change = MemoryChange::Free;
    if let Detail::Kernel(kernel) = &mut trace.work[1].detail {
        kernel.name = Arc::from("void \"gemm\"<float, 8>(float const*)");
        kernel.raw_name = Arc::from("_Z4gemmIfLi8EEvPKf");
        kernel.queued = Some(at(18));
    }
    trace
}

/// The sample's first step so often that it has a million pieces of work, each of a call of its own, in spans ten deep.
pub(super) fn million() -> Trace {
    let sample = gpu_trace();
    let steps = 200_000;
    let mut trace = Trace { end: at(100 * steps as u64), ..sample.clone() };
    (trace.work, trace.api_calls, trace.spans) = (Vec::new(), Vec::new(), Vec::new());
    let mut work = [Vec::new(), Vec::new(), Vec::new()];
    for step in 0..steps {
        let later = |when: Timestamp| Timestamp::from_unix_nanos(when.as_unix_nanos() + 100_000 * step as u64);
        let first = trace.spans.len();
        for depth in 0..10 {
            let mut span = sample.spans[0].clone();
            (span.start, span.end) = (later(span.start), later(span.end));
            span.parent = (depth > 0).then(|| SpanId::new(first + depth - 1));
            trace.spans.push(span);
        }
        for piece in sample.work.iter().filter(|work| work.step == Some(StepId::new(0))) {
            let mut call = sample.api_calls[piece.call.unwrap().index()].clone();
            call.track = TrackId::new(0);
            (call.start, call.end) = (later(call.start), later(call.end));
            call.correlation = trace.api_calls.len() as u32 + 1;
            let mut piece = piece.clone();
            (piece.start, piece.end) = (later(piece.start), later(piece.end));
            piece.span = Some(SpanId::new(first + 9));
            piece.correlation = call.correlation;
            piece.call = Some(ApiCallId::new(trace.api_calls.len()));
            trace.api_calls.push(call);
            work[piece.stream.index()].push(piece);
        }
    }
    trace.work = work.concat();
    trace
}

/// Both samples, exported by `exporter` into a folder of this name: the trace and its files.
pub(super) fn exported<E: Exporter>(name: &str, exporter: impl Fn(PathBuf) -> E) -> Vec<(Trace, Vec<PathBuf>)> {
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap();
    let samples = [("gpu", gpu_trace()), ("awkward", awkward_trace())];
    samples
        .into_iter()
        .map(|(sample, trace)| {
            let folder = target.join("tmp/samples").join(name).join(sample);
            let _ = std::fs::remove_dir_all(&folder);
            let files = exporter(folder).export(&trace).unwrap();
            (trace, files)
        })
        .collect()
}

/// `cargo test --release -- --ignored --nocapture a_million`
#[test]
#[ignore = "a measurement"]
fn a_million_pieces_of_work() {
    let trace = million();
    println!("{} calls, {} spans", trace.api_calls().len(), trace.spans().len());
    let measure = |what: &str, write: &dyn Fn() -> usize| {
        let mut most = 0.0_f64;
        let mut size = 0;
        for _ in 0..3 {
            let start = Instant::now();
            size = write();
            most = most.max(trace.work().len() as f64 / start.elapsed().as_secs_f64() / 1e6);
        }
        println!("{what:12} {most:.2} M pieces of work / s, {size}");
    };
    measure("ranges", &|| ranges::gpu_ranges(&trace).len());
    let mut with_calls = trace.clone();
    with_calls.work.iter_mut().for_each(|work| (work.span, work.step) = (None, None));
    with_calls.api_calls.iter_mut().for_each(|call| call.span = None);
    (with_calls.waits, with_calls.allocations) = (Vec::new(), Vec::new());
    with_calls.spans = Vec::new();
    let mut alone = with_calls.clone();
    alone.work.iter_mut().for_each(|work| work.call = None);
    alone.api_calls = Vec::new();
    for (what, trace) in [("work alone", &alone), ("with calls and arrows", &with_calls), ("all", &trace)] {
        println!("{what}");
        let folder = tempfile::tempdir().unwrap();
        let size = |files: Vec<PathBuf>| {
            let sizes = files.iter().map(|file| file.metadata().unwrap().len() as usize);
            let size = sizes.sum();
            files.iter().for_each(|file| std::fs::remove_file(file).unwrap());
            size
        };
        measure("json", &|| size(Chrome::to_dir(folder.path()).export(trace).unwrap()));
        measure("pftrace", &|| size(Perfetto::to_dir(folder.path()).export(trace).unwrap()));
        measure("folded", &|| size(Stacks::to_dir(folder.path()).export(trace).unwrap()));
    }
}
