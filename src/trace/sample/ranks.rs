//! The sample trace on two ranks, which exchange data.

use super::{at, callsite, gpu_trace, kernel, put_in_order, set_fields, span};
use crate::trace::{
    ApiCallData, ApiCallId, Cut, DeviceId, Metadata, SpanId, Step, StepId, Stream, StreamId, Trace, TrackId, WorkData,
};
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

/// Returns the traces of ranks, each of which loads its data and then computes for so many microseconds in each of four
/// steps. Then they exchange data: the collective of a rank begins when the rank has computed, and ends on all ranks
/// 100 µs after the last one has begun it. So steps take equally long on all ranks.
///
/// The spans are `train_step`, and in it `data` and `backward`, at whose end the host waits for the GPU.
pub fn late_ranks(ranks: &[(u64, u64)]) -> Vec<Trace> {
    let last = ranks.iter().map(|(load, compute)| load + compute).max().unwrap_or(0);
    let of_rank = |(rank, &(load, compute)): (usize, &(u64, u64))| {
        late_rank(rank as u32, ranks.len() as u32, load, compute, last)
    };
    ranks.iter().enumerate().map(of_rank).collect()
}

fn late_rank(rank: u32, world_size: u32, load: u64, compute: u64, last: u64) -> Trace {
    let mut trace = gpu_trace();
    let (call, work) = (trace.api_calls[0].clone(), trace.work[1].clone());
    let pid = 1000 + rank;
    trace.metadata = Arc::new(Metadata { pid, rank, world_size, ..(*trace.metadata).clone() });
    trace.callsites = ["train_step", "data", "backward"].map(callsite).to_vec();
    (trace.steps, trace.spans, trace.work) = Default::default();
    (trace.api_calls, trace.waits, trace.allocations, trace.overheads) = Default::default();
    // From the last collective's begin to the end of a step: 100 µs, and the way to the host and back.
    let length = last + 120;
    for number in 0..4 {
        let t = |micros| at(length * number + micros);
        let (id, first) = (StepId::new(number as usize), trace.spans.len());
        let (start, end) = (t(0), t(length));
        trace.steps.push(Step { number, track: TrackId::new(0), start, end, cut: Cut::default() });
        trace.spans.push(span(0, None, id, start, end, 5));
        trace.spans.push(span(1, Some(first), id, start, t(load), load));
        trace.spans.push(span(2, Some(first), id, t(load), t(length - 5), length - 5 - load));
        let exchange = load + 4 + compute;
        let correlation = 10 * number as u32;
        let in_backward = Some(SpanId::new(first + 2));
        let calls =
            [("cuLaunchKernel", 1, load + 3), ("cuLaunchKernel", 5, load + 7), ("cuStreamSynchronize", 8, length - 5)];
        for (index, (name, from, to)) in calls.into_iter().enumerate() {
            trace.api_calls.push(ApiCallData {
                name: Arc::from(name),
                track: TrackId::new(0),
                start: t(load + from),
                end: t(to),
                correlation: correlation + index as u32,
                span: in_backward,
                ..call.clone()
            });
        }
        let works = [("gemm", load + 4, exchange), (COLLECTIVES[0], exchange, length - 6)];
        for (index, (name, from, to)) in works.into_iter().enumerate() {
            trace.work.push(WorkData {
                detail: kernel(name),
                stream: StreamId::new(0),
                start: t(from),
                end: t(to),
                correlation: correlation + index as u32,
                call: Some(ApiCallId::new(3 * number as usize + index)),
                span: in_backward,
                step: Some(id),
                ..work.clone()
            });
        }
    }
    trace.end = at(4 * length);
    trace
}
