//! Small traces with every kind of GPU activity, for the tests of exporters and reports.
//!
//! This is not part of the public API: it may change in any release.

mod awkward;
mod edit;
mod gpu;
mod host;
mod ranks;
mod stacks;

pub use self::{
    awkward::awkward_trace,
    edit::{
        add_counter, add_event, add_gpu_counters, copies_trace, cut_both_ends, losses_mut, measure_work, remove_gpu,
        remove_steps, rename, repeat_work, retain_work, set_boundary, set_caller, set_context, set_fields, set_flops,
        set_follows, set_parent, set_previous, set_start, set_steps, set_track, set_work_end,
    },
    gpu::GpuTrace,
    host::HostTrace,
    ranks::{COLLECTIVES, late_ranks, ranks},
    stacks::{SampledStack, add_stack, frame, inlined, sample_stacks, stacks_trace},
};

use super::{
    AllocationData, Api, ApiCallData, ApiCallId, Attribution, BatchIds, Batches, CallsiteData, CallsiteId, Cut, Detail,
    Device, DeviceId, Direction, FieldRange, Gpu, GpuLibrary, GraphNode, Kernel, Level, LoadsData, MemoryChange,
    MemoryCopy, MemoryFill, MemoryKind, Metadata, Operation, OperationCallData, OperationId, Overhead, SpanData,
    SpanId, Step, StepId, Stream, StreamId, ThreadId, Timestamp, Trace, Track, TrackId, WaitData, WaitKind, WorkData,
};
use std::{borrow::Cow, sync::Arc};

const MICRO: u64 = 1_000;

/// Returns a moment, given in microseconds after the window opened.
pub fn at(micros: u64) -> Timestamp {
    Timestamp::from_unix_nanos(1_800_000_000_000_000_000 + micros * MICRO)
}

/// Returns the sample trace: two steps of 100 µs on the thread `main`, and a second thread, `device`, which launches
/// on behalf of `main`.
///
/// The spans are `train_step` (0–90, 100–190), and in it `forward` (10–40, 110–140) and `backward` (40–80, 140–180).
///
/// In each step, stream 7 has a copy of 4000 bytes in 4 µs from `train_step`, a kernel `gemm` of 20 µs from `forward`
/// and a kernel `gemm` of 30 µs from `backward`. Stream 8 has two graph nodes of 10 µs that overlap, handed off by
/// `backward`. At the end of the second step there is an unattributed kernel, `stray`, which ends after the window.
pub fn gpu_trace() -> Trace {
    let mut trace = Trace {
        window: 0,
        start: at(0),
        end: at(200),
        metadata: Arc::new(Metadata {
            host: "host".to_owned(),
            pid: 1000,
            process: "train".to_owned(),
            world_size: 1,
            ..Metadata::default()
        }),
        gpu: Gpu::Available(GpuLibrary {
            path: "libcupti.so.13".to_owned(),
            cupti_version: 130_001,
            driver_version: 13_000,
            warning: None,
        }),
        devices: vec![h200()],
        ..Trace::default()
    };
    trace.tracks = vec![track(1000, "main"), track(1001, "device")];
    trace.callsites = ["train_step", "forward", "backward"].map(callsite).to_vec();
    trace.streams = vec![stream(7, 0), stream(8, 0), stream(8, 1)];
    trace.overheads.push(Overhead { name: "Buffer Flush".into(), thread: None, start: at(195), end: at(199) });
    for step in 0..2 {
        let t = |micros| at(100 * step + micros);
        let id = StepId::new(trace.steps.len());
        trace.steps.push(Step {
            number: 5 + step,
            track: TrackId::new(0),
            start: t(0),
            end: t(100),
            cut: Cut::default(),
        });
        let first = trace.spans.len();
        trace.spans.push(span(0, None, id, t(0), t(90), 20));
        trace.spans.push(span(1, Some(first), id, t(10), t(40), 30));
        trace.spans.push(span(2, Some(first), id, t(40), t(80), 40));
        let correlation = 100 * step as u32;
        let mut work = |(detail, start, end): (Detail, u64, u64), stream, owner: usize, n: u32, name: &str, thread| {
            let attribution = if thread == 0 { Attribution::Direct } else { Attribution::HandedOff };
            // All nodes of a graph are launched by one call.
            if trace.api_calls.last().is_none_or(|call| call.correlation != correlation + n) {
                trace.api_calls.push(ApiCallData {
                    api: Api::CudaDriver,
                    function: 307,
                    name: Arc::from(name),
                    track: TrackId::new(thread),
                    start: t(start - 3),
                    end: t(start - 1),
                    correlation: correlation + n,
                    result: 0,
                    attribution,
                    span: Some(SpanId::new(first + owner)),
                    batch: None,
                });
            }
            let call = ApiCallId::new(trace.api_calls.len() - 1);
            trace.work.push(WorkData {
                detail,
                stream: StreamId::new(stream),
                start: t(start),
                end: t(end),
                correlation: correlation + n,
                graph: (thread == 1).then_some(GraphNode { graph: 3, node: 30 + u64::from(n) }),
                call: Some(call),
                attribution,
                span: Some(SpanId::new(first + owner)),
                step: Some(id),
            });
        };
        let copy = MemoryCopy {
            direction: Direction::HostToDevice,
            from: MemoryKind::Pageable,
            to: MemoryKind::Device,
            bytes: 4000,
        };
        work((Detail::Copy(copy), 5, 9), 0, 0, 1, "cuMemcpyHtoDAsync", 0);
        work((kernel("gemm"), 20, 40), 0, 1, 2, "cuLaunchKernel", 0);
        work((kernel("gemm"), 50, 80), 0, 2, 3, "cuLaunchKernel", 0);
        work((kernel("node"), 60, 70), 1, 2, 4, "cuGraphLaunch", 1);
        let fill = MemoryFill { value: 0, memory: MemoryKind::Device, bytes: 64 };
        work((Detail::Fill(fill), 65, 75), 2, 2, 4, "cuGraphLaunch", 1);
        trace.waits.push(WaitData {
            kind: WaitKind::Stream,
            start: t(82),
            end: t(88),
            correlation: correlation + 5,
            device: Some(DeviceId::new(0)),
            context: 1,
            stream: Some(7),
            event: None,
            call: None,
            attribution: Attribution::Direct,
            span: Some(SpanId::new(first)),
        });
        for (micros, change, in_use) in [(12, MemoryChange::Allocate, 5096), (78, MemoryChange::Free, 1000)] {
            trace.allocations.push(AllocationData {
                at: t(micros),
                context: 1,
                device: DeviceId::new(0),
                address: 0x7000_0000,
                bytes: Some(4096),
                change,
                pooled: true,
                by_framework: false,
                in_use,
                reserved: 1 << 20,
                track: TrackId::new(0),
                attribution: Attribution::Direct,
                span: Some(SpanId::new(first + if micros == 12 { 1 } else { 2 })),
            });
        }
    }
    // Work of a call that was not recorded, without a span.
    trace.work.push(WorkData {
        detail: kernel("stray"),
        stream: StreamId::new(0),
        start: at(195),
        end: at(205),
        correlation: 999,
        graph: None,
        call: None,
        attribution: Attribution::Unattributed,
        span: None,
        step: None,
    });
    put_in_order(&mut trace);
    trace
}

/// Sorts work by stream and calls by thread, in the order that correlating leaves them in.
pub fn put_in_order(trace: &mut Trace) {
    trace.work.sort_by_key(|work| (work.stream, work.start));
    let mut order: Vec<usize> = (0..trace.api_calls.len()).collect();
    order.sort_by_key(|&call| (trace.api_calls[call].track, trace.api_calls[call].start));
    let mut calls = Vec::new();
    for &call in &order {
        calls.push(trace.api_calls[call].clone());
    }
    trace.api_calls = calls;
    for work in &mut trace.work {
        work.call = work.call.and_then(|id| order.iter().position(|&old| old == id.index())).map(ApiCallId::new);
    }
}

/// Returns the sample trace with operations, which the thread `device` reports in two batches in each step.
///
/// The first batch has a `matmul` for `forward`; the first `gemm` does it. The second batch has a `matmul` and an `add`
/// for `backward` and an `add` for `train_step`; the second `gemm` does them. There is also a `sync` without a batch or
/// a span.
pub fn operations_trace() -> Trace {
    let mut trace = gpu_trace();
    let matmul = |shape: &str, flops: u64| {
        let matmul = Operation::new("matmul").with("op.shape.lhs", shape).with("op.dtype.lhs", "f32");
        Arc::new(matmul.with("op.flops", flops))
    };
    let (forward, backward) = (matmul("[8, 4]", 335_000_000), matmul("[4, 8]", 670_000_000));
    let add = Arc::new(Operation::new("add").with("op.shape.lhs", "[8]").with("op.flops", 8_u64));
    let sync = Arc::new(Operation::new("sync"));
    let (mut operations, mut launched) = (Vec::new(), Vec::new());
    for step in [0, 1_u32] {
        let (first, batch) = (3 * step as usize, 10 * step + 1);
        operations.extend([
            (&forward, Some(first + 1), batch),
            (&backward, Some(first + 2), batch + 1),
            (&add, Some(first + 2), batch + 1),
            (&add, Some(first), batch + 1),
            (&sync, None, 0),
        ]);
        launched.extend([(100 * step + 2, batch), (100 * step + 3, batch + 1)]);
    }
    add_operations(&mut trace, &operations, &launched);
    trace
}

/// Adds operations, which the last thread reports, and puts calls into batches.
///
/// Each operation comes with the index of its span and the number of its batch. `launched` has the correlation id and
/// the batch of each call.
pub fn add_operations(
    trace: &mut Trace,
    operations: &[(&Arc<Operation>, Option<usize>, u32)],
    launched: &[(u32, u32)],
) {
    let mut ids = BatchIds::default();
    for (number, &(operation, span, batch)) in operations.iter().enumerate() {
        let index = trace.operations.iter().position(|other| Arc::ptr_eq(other, operation));
        if index.is_none() {
            trace.operations.push(Arc::clone(operation));
        }
        trace.operation_calls.push(OperationCallData {
            operation: OperationId::new(index.unwrap_or(trace.operations.len() - 1)),
            track: TrackId::new(trace.tracks.len() - 1),
            at: Timestamp::from_unix_nanos(trace.start.as_unix_nanos() + (15 + number as u64) * MICRO),
            attribution: if span.is_some() { Attribution::HandedOff } else { Attribution::Unattributed },
            span: span.map(SpanId::new),
            step: span.and_then(|span| trace.spans[span].step),
            batch: ids.id(batch),
        });
    }
    for &(correlation, batch) in launched {
        let calls = trace.api_calls.iter_mut().filter(|call| call.correlation == correlation);
        calls.for_each(|call| call.batch = ids.id(batch));
    }
    trace.batches = Batches::new(&ids, &trace.operation_calls, trace.spans.len());
}

/// Returns a trace of spans on one thread: the name of each, the index of its parent, and its start and end in
/// microseconds.
pub fn spans_trace(spans: &[(&'static str, Option<usize>, u64, u64)]) -> Trace {
    let mut trace = Trace { start: at(0), tracks: vec![track(1000, "main")], ..Trace::default() };
    for &(name, parent, start, end) in spans {
        let index = trace.callsites.iter().position(|callsite| callsite.name == name);
        if index.is_none() {
            trace.callsites.push(callsite(name));
        }
        if let Some(parent) = parent {
            trace.spans[parent].self_nanos -= (end - start) * MICRO;
        }
        trace.spans.push(SpanData {
            step: None,
            ..span(index.unwrap_or(trace.callsites.len() - 1), parent, StepId::new(0), at(start), at(end), end - start)
        });
        trace.end = trace.end.max(at(end));
    }
    trace
}

/// Returns the sample trace with other allocations, one each microsecond: the address, the bytes (`None` for a free),
/// the bytes in use afterwards and the index of the span.
pub fn memory_trace(records: &[(u64, Option<u64>, u64, Option<usize>)]) -> Trace {
    let mut trace = gpu_trace();
    let data = records.iter().enumerate().map(|(index, &(address, bytes, in_use, span))| AllocationData {
        at: at(index as u64),
        context: 1,
        device: DeviceId::new(0),
        address,
        bytes,
        change: if bytes.is_some() { MemoryChange::Allocate } else { MemoryChange::Free },
        pooled: true,
        by_framework: false,
        in_use,
        reserved: in_use,
        track: TrackId::new(0),
        attribution: Attribution::Direct,
        span: span.map(SpanId::new),
    });
    trace.allocations = data.collect();
    trace
}

/// Returns the device of the sample trace.
pub fn h200() -> Device {
    Device {
        id: DeviceId::new(0),
        name: "NVIDIA H200".to_owned(),
        uuid: "GPU-0".to_owned(),
        memory: 150_109_880_320,
        compute_capability: (9, 0),
        multiprocessors: 132,
        warp_size: 32,
        threads_per_block: 1024,
        threads_per_multiprocessor: 2048,
        blocks_per_multiprocessor: 32,
        registers_per_block: 65536,
        registers_per_multiprocessor: 65536,
        shared_memory_per_block: 49152,
        shared_memory_per_block_optin: 232_448,
        shared_memory_per_multiprocessor: 233_472,
        shared_memory_reserved: 1024,
        clock_khz: 1_980_000,
        memory_clock_khz: 3_201_000,
        memory_bus_bits: 6144,
    }
}

/// Returns a kernel of the sample trace.
pub fn kernel(name: &str) -> Detail {
    Detail::Kernel(Kernel {
        name: Arc::from(name),
        raw_name: Arc::from(name),
        grid: [8, 1, 6],
        block: [128, 1, 1],
        registers: 74,
        static_shared_memory: 20480,
        dynamic_shared_memory: 0,
        queued: None,
    })
}

fn track(thread: u64, name: &str) -> Track {
    Track { thread: ThreadId::new(thread), name: name.to_owned(), overlap: 0 }
}

fn stream(number: u32, overlap: u32) -> Stream {
    Stream { device: DeviceId::new(0), context: 1, number, overlap }
}

fn callsite(name: &'static str) -> CallsiteData {
    CallsiteData {
        name: Cow::Borrowed(name),
        target: Cow::Borrowed("model"),
        level: Level::Info,
        file: Some(Cow::Borrowed("src/model.rs")),
        line: Some(7),
        fields: Vec::new(),
        loads: LoadsData::default(),
    }
}

fn span(
    callsite: usize,
    parent: Option<usize>,
    step: StepId,
    start: Timestamp,
    end: Timestamp,
    self_micros: u64,
) -> SpanData {
    SpanData {
        callsite: CallsiteId::new(callsite),
        track: TrackId::new(0),
        parent: parent.map(SpanId::new),
        previous: None,
        step: Some(step),
        start,
        end,
        self_nanos: self_micros * MICRO,
        fields: FieldRange::default(),
        cut: Cut::default(),
    }
}
