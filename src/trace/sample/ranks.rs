//! The sample trace on two ranks, which exchange data.

use super::{at, gpu_trace, kernel, put_in_order, set_fields};
use crate::trace::{ApiCallData, ApiCallId, DeviceId, Metadata, SpanId, Stream, StreamId, Trace, WorkData};
use std::sync::Arc;

/// Kernels of two releases of NCCL.
pub const COLLECTIVES: [&str; 2] = [
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
];

/// Returns the sample trace on two ranks, with a module `layers.0` that is called `aten::linear` instead of `forward`,
/// as in PyTorch. In each step, `backward` also launches two [collectives](COLLECTIVES) on stream 9, of 10 µs each. The
/// first begins while `gemm` is still running, and on the second rank it takes 4 µs more. There is no unattributed
/// kernel, as readers that compare ranks leave it out.
pub fn ranks() -> [Trace; 2] {
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
            set_fields(&mut trace, forward, &[("op.module", "layers.0")]);
            let t = |micros| at(100 * step as u64 + micros);
            let late = 4 * u64::from(rank);
            for (index, start, end) in [(0, 65, 75 + late), (1, 84, 94)] {
                let launch = 62 + 4 * index as u64;
                let correlation = 50 + 100 * step as u32 + index as u32;
                let launch_call = trace.api_calls.iter().find(|call| &*call.name == "cuLaunchKernel").cloned();
                let Some(call) = launch_call else { continue };
                let span = Some(SpanId::new(forward + 1));
                trace.work.push(WorkData {
                    detail: kernel(COLLECTIVES[index]),
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
