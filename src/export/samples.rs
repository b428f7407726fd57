//! Traces of GPUs that exporters are tested with.

use super::exporter::Exporter;
use crate::trace::{
    Api, ApiCallData, ApiCallId, Attribution, Detail, DeviceId, MemoryChange, Metadata, Overhead, SpanId, Stream,
    StreamId, Trace, TrackId, WaitData, WaitKind, WorkData,
    sample::{at, gpu_trace, h200, kernel, operations_trace, put_in_order, say},
};
use std::{path::PathBuf, sync::Arc};

/// The sample with everything that could go wrong: a container's first process and two GPUs, contexts that number their
/// streams alike, waits that cross, a call that failed, memory of unknown size, names that must be escaped.
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
            batch: None,
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

/// Kernels of two releases of NCCL.
pub(super) const COLLECTIVES: [&str; 2] = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
];

/// The sample on two ranks, with a module `layers.0` that is called `aten::linear` instead of `forward`, as in PyTorch.
///
/// In each step `backward` also launches two [collectives](COLLECTIVES) on stream 9, of 10 µs each. The first begins
/// while `gemm` is still running, and on the second rank it takes 4 µs more. The unattributed kernel is left out, as
/// readers that compare ranks leave it out, too.
pub(super) fn ranks() -> [Trace; 2] {
    [0, 1].map(|rank| {
        let mut trace = gpu_trace();
        trace.work.retain(|work| work.call.is_some());
        let pid = 1000 + rank;
        trace.metadata = Arc::new(Metadata { pid, rank, world_size: 2, ..(*trace.metadata).clone() });
        trace.callsites[1].name = "aten::linear".into();
        let stream = StreamId::new(trace.streams.len());
        trace.streams.push(Stream { device: DeviceId::new(0), context: 1, number: 9, overlap: 0 });
        for step in 0..2 {
            let forward = 3 * step + 1;
            say(&mut trace, forward, &[("op.module", "layers.0")]);
            let t = |micros| at(100 * step as u64 + micros);
            let late = 4 * u64::from(rank);
            for (place, start, end) in [(0, 65, 75 + late), (1, 84, 94)] {
                let launch = 62 + 4 * place as u64;
                let correlation = 50 + 100 * step as u32 + place as u32;
                let call = trace.api_calls.iter().find(|call| &*call.name == "cuLaunchKernel").cloned().unwrap();
                let span = Some(SpanId::new(forward + 1));
                trace.work.push(WorkData {
                    detail: kernel(COLLECTIVES[place]),
                    stream,
                    start: t(start),
                    end: t(end),
                    correlation,
                    call: Some(ApiCallId::new(trace.api_calls.len())),
                    span,
                    step: trace.spans[forward].step,
                    ..trace.work[1].clone()
                });
                trace.api_calls.push(ApiCallData { start: t(launch), end: t(launch + 2), correlation, span, ..call });
            }
        }
        put_in_order(&mut trace);
        trace
    })
}

/// The samples, each with the file that an exporter writes for it.
pub(super) fn exported<E: Exporter>(exporter: impl Fn(PathBuf) -> E) -> Vec<(Trace, Vec<u8>)> {
    let exported = |trace: Trace| {
        let folder = tempfile::tempdir().unwrap();
        let files = exporter(folder.path().to_owned()).export(&trace).unwrap();
        (trace, std::fs::read(&files[0]).unwrap())
    };
    [gpu_trace(), awkward_trace(), operations_trace()].map(exported).into()
}
