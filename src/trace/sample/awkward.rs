//! A sample trace with unusual data.

use super::{at, gpu_trace, h200};
use crate::trace::{
    Api, ApiCallData, ApiCallId, Attribution, Detail, DeviceId, MemoryChange, Metadata, Overhead, SpanId, Stream,
    StreamId, Trace, TrackId, WaitData, WaitKind,
};
use std::sync::Arc;

/// Returns the sample trace with unusual data: process id 1, two GPUs, contexts whose streams have the same numbers,
/// waits that overlap, a call that failed, memory of unknown size, and names that must be escaped.
pub fn awkward_trace() -> Trace {
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
    trace.overheads.push(Overhead { name: "Instrumentation".into(), thread: None, start: at(197), end: at(201) });
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
