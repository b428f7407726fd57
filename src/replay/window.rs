//! The protobuf message of a window: a trace's spans, steps, operations and calls, and the GPU records.

#[cfg(test)]
pub(super) mod tests;

use super::{
    gather,
    gpu_messages::{
        AllocationMessage, CallMessage, CountersMessage, DeviceMessage, LibraryMessage, OperationCallMessage,
        OperationMessage, Shared,
    },
    span_messages::{CallsiteMessage, SpanMessage, StepMessage, TrackMessage},
};
use crate::{
    correlate::join_gpu,
    recording::{GpuRecording, Pool, RawRecords},
    trace::{Batches, DeviceId, Gpu, Metadata, SpanId, Timestamp, Trace},
};
use prost::{Message, bytes::Bytes};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A recorded window.
#[derive(Message)]
pub(super) struct Window {
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(string, tag = "4")]
    host: String,
    #[prost(uint32, tag = "5")]
    pid: u32,
    #[prost(string, tag = "6")]
    process: String,
    #[prost(message, optional, tag = "7")]
    library: Option<LibraryMessage>,
    #[prost(message, repeated, tag = "8")]
    devices: Vec<DeviceMessage>,
    #[prost(message, repeated, tag = "9")]
    callsites: Vec<CallsiteMessage>,
    #[prost(message, repeated, tag = "10")]
    tracks: Vec<TrackMessage>,
    #[prost(message, repeated, tag = "11")]
    steps: Vec<StepMessage>,
    #[prost(message, repeated, tag = "12")]
    spans: Vec<SpanMessage>,
    /// The API calls, each a [`CallMessage`]. There are as many as records, so they are decoded one by one.
    #[prost(bytes = "bytes", repeated, tag = "13")]
    calls: Vec<Bytes>,
    #[prost(message, repeated, tag = "14")]
    allocations: Vec<AllocationMessage>,
    /// Bytes in use in each device's pool when the window opened.
    #[prost(map = "uint32, uint64", tag = "15")]
    in_use: HashMap<u32, u64>,
    /// Bytes that each device's pool had reserved when the window opened.
    #[prost(map = "uint32, uint64", tag = "18")]
    reserved: HashMap<u32, u64>,
    #[prost(btree_map = "uint64, string", tag = "16")]
    names: BTreeMap<u64, String>,
    #[prost(bytes = "bytes", tag = "17")]
    records: Bytes,
    /// The operations. Windows that were recorded before there were operations have none.
    #[prost(message, repeated, tag = "19")]
    operations: Vec<OperationMessage>,
    /// The uses of operations, each an [`OperationCallMessage`]. They are decoded one by one, too.
    #[prost(bytes = "bytes", repeated, tag = "20")]
    operation_calls: Vec<Bytes>,
    /// The bytes that frameworks' pools had in use, and those they had reserved, by device.
    #[prost(map = "uint32, uint64", tag = "21")]
    pools_in_use: HashMap<u32, u64>,
    #[prost(map = "uint32, uint64", tag = "22")]
    pools_reserved: HashMap<u32, u64>,
    /// The samples of hardware counters.
    #[prost(message, repeated, tag = "23")]
    counters: Vec<CountersMessage>,
    /// The rank, the number of processes if there are several, and the name of the run. Windows that were recorded
    /// before these were written have none.
    #[prost(uint32, tag = "24")]
    rank: u32,
    #[prost(uint32, tag = "25")]
    world_size: u32,
    #[prost(string, optional, tag = "26")]
    run: Option<String>,
}

/// The fields of a window that say where it comes from. Its records are passed over.
#[cfg(any(feature = "read", test))]
#[derive(Message)]
pub(super) struct WindowOrigin {
    #[prost(uint32, tag = "1")]
    pub(super) index: u32,
    #[prost(uint64, tag = "2")]
    pub(super) start: u64,
    #[prost(string, tag = "4")]
    host: String,
    #[prost(uint32, tag = "5")]
    pid: u32,
    #[prost(string, tag = "6")]
    process: String,
    #[prost(uint32, tag = "24")]
    rank: u32,
    #[prost(uint32, tag = "25")]
    world_size: u32,
    #[prost(string, optional, tag = "26")]
    run: Option<String>,
}

#[cfg(any(feature = "read", test))]
impl WindowOrigin {
    pub(super) fn into_metadata(self) -> Metadata {
        let Self { host, pid, process, rank, world_size, run, .. } = self;
        Metadata { host, pid, process, rank, world_size: world_size.max(1), run, ..Metadata::default() }
    }
}

impl Window {
    /// Makes the message of a trace and its GPU records.
    pub(super) fn of(trace: &Trace, raw: &RawRecords, pools: &HashMap<u32, Pool>) -> Self {
        let calls = trace.api_calls.iter().map(|call| CallMessage::of(trace, call));
        let operation_calls = trace.operation_calls.iter().map(|call| OperationCallMessage::of(trace, call));
        Self {
            index: trace.window,
            start: trace.start.as_unix_nanos(),
            end: trace.end.as_unix_nanos(),
            host: trace.metadata.host.clone(),
            pid: trace.metadata.pid,
            process: trace.metadata.process.clone(),
            rank: trace.metadata.rank,
            world_size: if trace.metadata.world_size > 1 { trace.metadata.world_size } else { 0 },
            run: trace.metadata.run.clone(),
            library: match &trace.gpu {
                Gpu::Available(library) => Some(LibraryMessage::of(library)),
                _ => None,
            },
            devices: trace.devices.iter().map(DeviceMessage::of).collect(),
            callsites: trace.callsites.iter().map(CallsiteMessage::of).collect(),
            tracks: trace.tracks.iter().map(TrackMessage::of).collect(),
            steps: trace.steps.iter().map(|step| StepMessage::of(trace, step)).collect(),
            spans: (0..trace.spans.len()).map(|index| SpanMessage::of(trace, SpanId::new(index))).collect(),
            calls: calls.map(|call| call.encode_to_vec().into()).collect(),
            allocations: trace
                .allocations
                .iter()
                .chain(&trace.pages)
                .map(|change| AllocationMessage::of(trace, change))
                .collect(),
            in_use: pools.iter().map(|(device, pool)| (*device, pool.used)).collect(),
            reserved: pools.iter().map(|(device, pool)| (*device, pool.reserved)).collect(),
            names: raw.names.clone(),
            records: raw.bytes.clone().into(),
            operations: trace.operations.iter().map(|operation| OperationMessage::of(operation)).collect(),
            operation_calls: operation_calls.map(|call| call.encode_to_vec().into()).collect(),
            pools_in_use: trace.pools.iter().map(|(device, (used, _))| (device.as_u32(), *used)).collect(),
            pools_reserved: trace.pools.iter().map(|(device, (_, reserved))| (device.as_u32(), *reserved)).collect(),
            counters: trace.gpu_counters.iter().map(CountersMessage::of).collect(),
        }
    }

    /// Makes a trace of the message. Returns `None` if an index in it is out of range.
    pub(super) fn into_trace(mut self) -> Option<Trace> {
        let mut trace = Trace {
            window: self.index,
            start: Timestamp::from_unix_nanos(self.start),
            end: Timestamp::from_unix_nanos(self.end.max(self.start)),
            metadata: Arc::new(Metadata {
                host: std::mem::take(&mut self.host),
                pid: self.pid,
                process: std::mem::take(&mut self.process),
                rank: self.rank,
                world_size: self.world_size.max(1),
                run: self.run.take(),
                ..Metadata::default()
            }),
            ..Trace::default()
        };
        self.move_threads_to(&mut trace)?;
        self.move_calls_to(&mut trace)?;
        let reserved = |device: &u32| self.pools_reserved.get(device).copied().unwrap_or(0);
        let pool = |(device, used): (&u32, &u64)| (DeviceId::new(*device), (*used, reserved(device)));
        trace.pools = self.pools_in_use.iter().map(pool).collect();
        let counters = std::mem::take(&mut self.counters).into_iter().map(CountersMessage::into_counters);
        let counters = counters.collect::<Option<_>>()?;
        let recording = GpuRecording { counters, ..self.into_gpu_recording(&trace) };
        let requested = trace.api_calls.iter().map(|call| call.start).collect();
        join_gpu(&mut trace, recording, requested);
        Some(trace)
    }

    fn move_threads_to(&mut self, trace: &mut Trace) -> Option<()> {
        let (callsites, tracks) = (std::mem::take(&mut self.callsites), std::mem::take(&mut self.tracks));
        trace.callsites = callsites.into_iter().map(CallsiteMessage::into_callsite).collect();
        trace.tracks = tracks.into_iter().map(TrackMessage::into_track).collect();
        std::mem::take(&mut self.steps).into_iter().try_for_each(|step| step.add_to(trace))?;
        let cpu_time = |(index, span): (usize, &SpanMessage)| Some((SpanId::new(index), span.cpu_nanos?));
        let cpu_times = self.spans.iter().enumerate().filter_map(cpu_time).collect();
        std::mem::take(&mut self.spans).into_iter().try_for_each(|span| span.add_to(trace))?;
        trace.set_cpu_times(cpu_times);
        has_ordered_spans(trace).then_some(())
    }

    fn move_calls_to(&mut self, trace: &mut Trace) -> Option<()> {
        let mut shared = Shared::default();
        let mut call = CallMessage::default();
        trace.api_calls.reserve(self.calls.len());
        for bytes in std::mem::take(&mut self.calls) {
            call.clear();
            call.merge(&*bytes).ok()?;
            call.add_to(trace, &mut shared)?;
        }
        let operations = std::mem::take(&mut self.operations).into_iter().map(OperationMessage::into_operation);
        trace.operations = operations.map(Arc::new).collect();
        let mut call = OperationCallMessage::default();
        trace.operation_calls.reserve(self.operation_calls.len());
        for bytes in std::mem::take(&mut self.operation_calls) {
            call.clear();
            call.merge(&*bytes).ok()?;
            call.add_to(trace, &mut shared)?;
        }
        trace.batches = Batches::new(&shared.batches, &trace.operation_calls, trace.spans.len());
        std::mem::take(&mut self.allocations).into_iter().try_for_each(|change| change.add_to(trace))
    }

    fn into_gpu_recording(self, trace: &Trace) -> GpuRecording {
        let pool = |(device, used): (&u32, &u64)| {
            let reserved = self.reserved.get(device).copied().unwrap_or(0);
            (*device, Pool { reserved, used: *used })
        };
        GpuRecording {
            pools: self.in_use.iter().map(pool).collect(),
            devices: self.devices.into_iter().map(DeviceMessage::into_device).collect(),
            gpu: self.library.map_or(Gpu::NotAsked, |library| Gpu::Available(library.into_library())),
            ..gather(trace, &self.records, &self.names)
        }
    }
}

/// Whether callers and causes exist and previous spans are earlier. Otherwise, there might be a circle.
fn has_ordered_spans(trace: &Trace) -> bool {
    let is_earlier = |previous: SpanId, id: SpanId| {
        let start_of = |id: SpanId| trace.spans.get(id.index()).map(|span| span.start);
        start_of(previous).is_some_and(|start| (Some(start), previous) < (start_of(id), id))
    };
    let mut spans = trace.spans.iter().enumerate();
    spans.all(|(index, span)| span.previous.is_none_or(|previous| is_earlier(previous, SpanId::new(index))))
        && trace.callers.values().flatten().all(|caller| caller.index() < trace.spans.len())
        && trace.follows.values().flatten().all(|cause| cause.index() < trace.spans.len())
        && trace.caller_order().is_some()
}
