//! The protobuf message of a window: a trace's spans, steps, operations and calls, and the GPU records.

#[cfg(test)]
pub(super) mod tests;

use super::{
    gather,
    parts::{
        AllocationMessage, CallMessage, CallsiteMessage, CutMessage, DeviceMessage, ExtentMessage, FieldMessage,
        LibraryMessage, OperationCallMessage, OperationMessage, OwnerMessage, SpanMessage, StepMessage, TrackMessage,
    },
};
use crate::{
    correlate::join_gpu,
    recording::{Pool, RawRecords},
    trace::{
        AllocationData, Api, ApiCallData, BatchId, BatchIds, Batches, CallsiteId, Cut, DeviceId, FieldRange, Gpu,
        GpuLibrary, MemoryChange, Metadata, OperationCallData, OperationId, SpanData, SpanId, Step, StepId, ThreadId,
        Timestamp, Trace, Track, TrackId,
    },
};
use prost::{Message, bytes::Bytes};
use rustc_hash::FxHashMap;
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
}

impl Window {
    /// Makes the message of a trace and its GPU records.
    pub(super) fn of(trace: &Trace, raw: &RawRecords, pools: &HashMap<u32, Pool>) -> Self {
        let extent = |start: Timestamp, end: Timestamp, track: TrackId| {
            let since = |at: Timestamp, from: Timestamp| at.as_unix_nanos().saturating_sub(from.as_unix_nanos());
            Some(ExtentMessage {
                start: since(start, trace.start),
                nanos: since(end, start),
                track: track.index() as u32,
            })
        };
        let cut = |cut: Cut| cut.any().then_some(CutMessage { start: cut.start, end: cut.end });
        let batch = |batch: Option<BatchId>| batch.map_or(0, |batch| batch.index() as u32 + 1);
        Self {
            index: trace.window,
            start: trace.start.as_unix_nanos(),
            end: trace.end.as_unix_nanos(),
            host: trace.metadata.host.clone(),
            pid: trace.metadata.pid,
            process: trace.metadata.process.clone(),
            library: match &trace.gpu {
                Gpu::Available(library) => Some(LibraryMessage {
                    path: library.path.clone(),
                    cupti_version: library.cupti_version,
                    driver_version: library.driver_version,
                }),
                _ => None,
            },
            devices: trace.devices.iter().map(DeviceMessage::of).collect(),
            callsites: trace
                .callsites
                .iter()
                .map(|callsite| CallsiteMessage {
                    name: callsite.name.to_string(),
                    target: callsite.target.to_string(),
                    file: callsite.file.as_deref().map(str::to_owned),
                    line: callsite.line,
                    fields: callsite.fields.iter().map(ToString::to_string).collect(),
                })
                .collect(),
            tracks: trace
                .tracks
                .iter()
                .map(|track| TrackMessage {
                    thread: track.thread.as_u64(),
                    name: track.name.clone(),
                    overlap: track.overlap,
                })
                .collect(),
            steps: trace
                .steps
                .iter()
                .map(|step| StepMessage {
                    number: step.number,
                    extent: extent(step.start, step.end, step.track),
                    cut: cut(step.cut),
                })
                .collect(),
            spans: trace
                .spans
                .iter()
                .enumerate()
                .map(|(index, span)| SpanMessage {
                    callsite: span.callsite.index() as u32,
                    extent: extent(span.start, span.end, span.track),
                    parent: span.parent.map(|parent| parent.index() as u32),
                    step: span.step.map(|step| step.index() as u32),
                    self_nanos: span.self_nanos,
                    cut: cut(span.cut),
                    fields: trace.fields[span.fields.as_range()].iter().map(FieldMessage::of).collect(),
                    previous: span.previous.map(|previous| previous.index() as u32),
                    caller: trace.callers.get(&SpanId::new(index)).map(|id| id.map_or(0, |id| id.index() as u32 + 1)),
                })
                .collect(),
            calls: trace
                .api_calls
                .iter()
                .map(|call| CallMessage {
                    extent: extent(call.start, call.end, call.track),
                    api: u32::from(call.api == Api::CudaRuntime),
                    function: call.function,
                    name: call.name.to_string(),
                    correlation: call.correlation,
                    result: call.result,
                    owner: Some(OwnerMessage::of(call.span, call.attribution)),
                    batch: batch(call.batch),
                })
                .map(|call| call.encode_to_vec().into())
                .collect(),
            allocations: trace
                .allocations
                .iter()
                .map(|allocation| AllocationMessage {
                    extent: extent(allocation.at, allocation.at, allocation.track),
                    context: allocation.context,
                    address: allocation.address,
                    bytes: allocation.bytes,
                    free: allocation.change == MemoryChange::Free,
                    pooled: allocation.pooled,
                    owner: Some(OwnerMessage::of(allocation.span, allocation.attribution)),
                })
                .collect(),
            in_use: pools.iter().map(|(device, pool)| (*device, pool.used)).collect(),
            reserved: pools.iter().map(|(device, pool)| (*device, pool.reserved)).collect(),
            names: raw.names.clone(),
            records: raw.bytes.clone().into(),
            operations: trace.operations.iter().map(|operation| OperationMessage::of(operation)).collect(),
            operation_calls: trace
                .operation_calls
                .iter()
                .map(|call| OperationCallMessage {
                    operation: call.operation.index() as u32,
                    extent: extent(call.at, call.at, call.track),
                    step: call.step.map(|step| step.index() as u32),
                    owner: Some(OwnerMessage::of(call.span, call.attribution)),
                    batch: batch(call.batch),
                })
                .map(|call| call.encode_to_vec().into())
                .collect(),
        }
    }

    /// Makes a trace of the message. Returns `None` if an index in it is out of range.
    pub(super) fn into_trace(self) -> Option<Trace> {
        let start = Timestamp::from_unix_nanos(self.start);
        let extent = |message: Option<ExtentMessage>| {
            let ExtentMessage { start: since, nanos, track } = message.unwrap_or_default();
            let start = self.start.saturating_add(since);
            let end = start.saturating_add(nanos);
            ((track as usize) < self.tracks.len()).then(|| {
                (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end), TrackId::new(track as usize))
            })
        };
        let cut = |cut: Option<CutMessage>| cut.map_or_else(Cut::default, |cut| Cut { start: cut.start, end: cut.end });
        let within = |index: u32, length: usize| ((index as usize) < length).then_some(index as usize);
        let mut trace = Trace {
            window: self.index,
            start,
            end: Timestamp::from_unix_nanos(self.end.max(self.start)),
            metadata: Arc::new(Metadata {
                host: self.host,
                pid: self.pid,
                process: self.process,
                world_size: 1,
                ..Metadata::default()
            }),
            ..Trace::default()
        };
        for step in self.steps {
            let (start, end, track) = extent(step.extent)?;
            trace.steps.push(Step { number: step.number, track, start, end, cut: cut(step.cut) });
        }
        let spans = self.spans.len();
        for span in self.spans {
            let (start, end, track) = extent(span.extent)?;
            if let Some(caller) = span.caller {
                let id = SpanId::new(trace.spans.len());
                trace.callers.insert(id, caller.checked_sub(1).map(|caller| SpanId::new(caller as usize)));
            }
            let first_field = trace.fields.len();
            trace.fields.extend(span.fields.into_iter().filter_map(FieldMessage::into_field));
            trace.spans.push(SpanData {
                callsite: CallsiteId::new(within(span.callsite, self.callsites.len())?),
                track,
                // A parent comes before its children.
                parent: match span.parent {
                    Some(parent) => Some(SpanId::new(within(parent, trace.spans.len())?)),
                    None => None,
                },
                previous: span.previous.map(|previous| SpanId::new(previous as usize)),
                step: match span.step {
                    Some(step) => Some(StepId::new(within(step, trace.steps.len())?)),
                    None => None,
                },
                start,
                end,
                self_nanos: span.self_nanos,
                fields: FieldRange {
                    start: u32::try_from(first_field).ok()?,
                    len: u32::try_from(trace.fields.len() - first_field).ok()?,
                },
                cut: cut(span.cut),
            });
        }
        for index in 0..trace.spans.len() {
            let span = &trace.spans[index];
            // Otherwise, there might be a circle.
            let is_earlier = |id: SpanId| {
                let previous = trace.spans.get(id.index());
                previous.is_some_and(|previous| (previous.start, id) < (span.start, SpanId::new(index)))
            };
            if !span.previous.is_none_or(is_earlier) {
                return None;
            }
        }
        if trace.callers.values().flatten().any(|caller| caller.index() >= spans) || trace.caller_order().is_none() {
            return None;
        }
        let owner = |owner: Option<OwnerMessage>, spans: usize| {
            let owner = owner.unwrap_or_default();
            owner.span.is_none_or(|span| (span as usize) < spans).then_some(owner)
        };
        let mut names: FxHashMap<String, Arc<str>> = FxHashMap::default();
        let (mut call, mut batches) = (CallMessage::default(), BatchIds::default());
        trace.api_calls.reserve(self.calls.len());
        for bytes in self.calls {
            call.clear();
            call.merge(&*bytes).ok()?;
            let (start, end, track) = extent(call.extent)?;
            let owner = owner(call.owner, trace.spans.len())?;
            trace.api_calls.push(ApiCallData {
                api: if call.api == 0 { Api::CudaDriver } else { Api::CudaRuntime },
                function: call.function,
                name: match names.get(&call.name) {
                    Some(name) => Arc::clone(name),
                    None => names.entry(call.name.clone()).or_insert_with(|| Arc::from(call.name.as_str())).clone(),
                },
                track,
                start,
                end,
                correlation: call.correlation,
                result: call.result,
                attribution: owner.attribution(),
                span: owner.span_id(),
                batch: batches.id(call.batch),
            });
        }
        let operations = self.operations.into_iter().map(OperationMessage::into_operation);
        trace.operations = operations.map(Arc::new).collect();
        let mut call = OperationCallMessage::default();
        trace.operation_calls.reserve(self.operation_calls.len());
        for bytes in self.operation_calls {
            call.clear();
            call.merge(&*bytes).ok()?;
            let (at, _, track) = extent(call.extent)?;
            let owner = owner(call.owner, trace.spans.len())?;
            trace.operation_calls.push(OperationCallData {
                operation: OperationId::new(within(call.operation, trace.operations.len())?),
                track,
                at,
                attribution: owner.attribution(),
                span: owner.span_id(),
                step: match call.step {
                    Some(step) => Some(StepId::new(within(step, trace.steps.len())?)),
                    None => None,
                },
                batch: batches.id(call.batch),
            });
        }
        trace.batches = Batches::new(&batches, &trace.operation_calls, trace.spans.len());
        for allocation in self.allocations {
            let (at, _, track) = extent(allocation.extent)?;
            let owner = owner(allocation.owner, trace.spans.len())?;
            trace.allocations.push(AllocationData {
                at,
                context: allocation.context,
                device: DeviceId::default(),
                address: allocation.address,
                bytes: allocation.bytes,
                change: if allocation.free { MemoryChange::Free } else { MemoryChange::Allocate },
                pooled: allocation.pooled,
                in_use: 0,
                reserved: 0,
                track,
                attribution: owner.attribution(),
                span: owner.span_id(),
            });
        }
        trace.callsites = self.callsites.into_iter().map(CallsiteMessage::into_callsite).collect();
        trace.tracks = self
            .tracks
            .into_iter()
            .map(|track| Track { thread: ThreadId::new(track.thread), name: track.name, overlap: track.overlap })
            .collect();
        let mut recording = gather(&trace, &self.records, &self.names);
        drop(self.records);
        let reserved = |device| self.reserved.get(device).copied().unwrap_or(0);
        let pools =
            self.in_use.iter().map(|(device, used)| (*device, Pool { reserved: reserved(device), used: *used }));
        recording.pools = pools.collect();
        recording.devices = self.devices.into_iter().map(DeviceMessage::into_device).collect();
        recording.gpu = self.library.map_or(Gpu::NotAsked, |library| {
            Gpu::Available(GpuLibrary {
                path: library.path,
                cupti_version: library.cupti_version,
                driver_version: library.driver_version,
                warning: None,
            })
        });
        let requested = trace.api_calls.iter().map(|call| call.start).collect();
        join_gpu(&mut trace, recording, requested);
        Some(trace)
    }
}
