//! The parts of the message about GPUs and what they were asked to do: devices, API calls, operations, allocations.
//!
//! A part is made of an item by `of`, and becomes an item of a trace by `add_to`, which returns `None` if an index is
//! out of range.

use super::span_messages::{ExtentMessage, FieldMessage, within, within_if_any};
use crate::trace::{
    AllocationData, Api, ApiCallData, Attribution, BatchId, BatchIds, Device, DeviceId, FieldData, GpuCounters,
    GpuLibrary, GpuMetric, MemoryChange, MetricMeaning, Operation, OperationCallData, OperationId, SpanId, StepId,
    Timestamp, Trace,
};
use prost::Message;
use rustc_hash::FxHashMap;
use std::{sync::Arc, time::Duration};

#[derive(Message)]
pub(super) struct LibraryMessage {
    #[prost(string, tag = "1")]
    path: String,
    #[prost(uint32, tag = "2")]
    cupti_version: u32,
    #[prost(uint32, tag = "3")]
    driver_version: u32,
}

impl LibraryMessage {
    pub(super) fn of(library: &GpuLibrary) -> Self {
        let GpuLibrary { path, cupti_version, driver_version, .. } = library.clone();
        Self { path, cupti_version, driver_version }
    }

    pub(super) fn into_library(self) -> GpuLibrary {
        let Self { path, cupti_version, driver_version } = self;
        GpuLibrary { path, cupti_version, driver_version, warning: None }
    }
}

#[derive(Message)]
pub(super) struct DeviceMessage {
    #[prost(uint32, tag = "1")]
    id: u32,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    uuid: String,
    #[prost(uint64, tag = "4")]
    memory: u64,
    /// The rest, in the order of [`Device`].
    #[prost(uint32, repeated, tag = "5")]
    numbers: Vec<u32>,
}

impl DeviceMessage {
    pub(super) fn of(device: &Device) -> Self {
        let mut device = device.clone();
        let numbers = Self::numbers(&mut device).map(|number| *number).to_vec();
        Self { id: device.id.as_u32(), name: device.name, uuid: device.uuid, memory: device.memory, numbers }
    }

    pub(super) fn into_device(self) -> Device {
        let Self { id, name, uuid, memory, numbers } = self;
        let mut device = Device { id: DeviceId::new(id), name, uuid, memory, ..Device::default() };
        for (to, number) in Self::numbers(&mut device).into_iter().zip(numbers) {
            *to = number;
        }
        device
    }

    /// The numbers of a device, in the order in which the message has them.
    fn numbers(device: &mut Device) -> [&mut u32; 16] {
        let (major, minor) = &mut device.compute_capability;
        [
            major,
            minor,
            &mut device.multiprocessors,
            &mut device.warp_size,
            &mut device.threads_per_block,
            &mut device.threads_per_multiprocessor,
            &mut device.blocks_per_multiprocessor,
            &mut device.registers_per_block,
            &mut device.registers_per_multiprocessor,
            &mut device.shared_memory_per_block,
            &mut device.shared_memory_per_block_optin,
            &mut device.shared_memory_per_multiprocessor,
            &mut device.shared_memory_reserved,
            &mut device.clock_khz,
            &mut device.memory_clock_khz,
            &mut device.memory_bus_bits,
        ]
    }
}

/// The span that an item belongs to, and how the span is known.
#[derive(Clone, Copy, Message)]
pub(super) struct OwnerMessage {
    #[prost(uint32, optional, tag = "1")]
    span: Option<u32>,
    /// Whether the item was handed off. Without a span, it was handed off before the window opened.
    #[prost(bool, tag = "2")]
    handed_off: bool,
}

impl OwnerMessage {
    fn of(span: Option<SpanId>, attribution: Attribution) -> Option<Self> {
        let handed_off = matches!(attribution, Attribution::HandedOff | Attribution::Before);
        Some(Self { span: span.map(|span| span.index() as u32), handed_off })
    }

    fn resolve(message: Option<Self>, trace: &Trace) -> Option<(Option<SpanId>, Attribution)> {
        let Self { span, handed_off } = message.unwrap_or_default();
        let attribution = match (span, handed_off) {
            (None, true) => Attribution::Before,
            (None, false) => Attribution::Unattributed,
            (Some(_), true) => Attribution::HandedOff,
            (Some(_), false) => Attribution::Direct,
        };
        Some((within_if_any(span, trace.spans.len())?.map(SpanId::new), attribution))
    }
}

/// What API calls and operations share with each other: names, and the numbers of batches.
#[derive(Default)]
pub(super) struct Shared {
    names: FxHashMap<String, Arc<str>>,
    pub(super) batches: BatchIds,
}

impl Shared {
    fn name(&mut self, name: &str) -> Arc<str> {
        match self.names.get(name) {
            Some(name) => Arc::clone(name),
            None => Arc::clone(self.names.entry(name.to_owned()).or_insert_with(|| Arc::from(name))),
        }
    }
}

fn batch_number(batch: Option<BatchId>) -> u32 {
    batch.map_or(0, |batch| batch.index() as u32 + 1)
}

#[derive(Message)]
pub(super) struct CallMessage {
    #[prost(message, optional, tag = "1")]
    extent: Option<ExtentMessage>,
    #[prost(uint32, tag = "2")]
    api: u32,
    #[prost(uint32, tag = "3")]
    function: u32,
    #[prost(string, tag = "4")]
    name: String,
    #[prost(uint32, tag = "5")]
    correlation: u32,
    #[prost(uint32, tag = "6")]
    result: u32,
    #[prost(message, optional, tag = "7")]
    owner: Option<OwnerMessage>,
    /// The number of its batch, from 1.
    #[prost(uint32, tag = "8")]
    batch: u32,
}

impl CallMessage {
    pub(super) fn of(trace: &Trace, call: &ApiCallData) -> Self {
        Self {
            extent: ExtentMessage::of(trace, call.start, call.end, call.track),
            api: u32::from(call.api == Api::CudaRuntime),
            function: call.function,
            name: call.name.to_string(),
            correlation: call.correlation,
            result: call.result,
            owner: OwnerMessage::of(call.span, call.attribution),
            batch: batch_number(call.batch),
        }
    }

    pub(super) fn add_to(&self, trace: &mut Trace, shared: &mut Shared) -> Option<()> {
        let (start, end, track) = ExtentMessage::resolve(self.extent, trace)?;
        let (span, attribution) = OwnerMessage::resolve(self.owner, trace)?;
        trace.api_calls.push(ApiCallData {
            api: if self.api == 0 { Api::CudaDriver } else { Api::CudaRuntime },
            function: self.function,
            name: shared.name(&self.name),
            track,
            start,
            end,
            correlation: self.correlation,
            result: self.result,
            attribution,
            span,
            batch: shared.batches.id(self.batch),
        });
        Some(())
    }
}

/// An operation: its name and its fields.
#[derive(Message)]
pub(super) struct OperationMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    field_names: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    fields: Vec<FieldMessage>,
}

impl OperationMessage {
    pub(super) fn of(operation: &Operation) -> Self {
        let (field_names, fields) = operation
            .fields()
            .iter()
            .enumerate()
            .map(|(index, (name, value))| {
                let field = FieldData { index: index as u32, value: value.clone() };
                (name.to_owned(), FieldMessage::of(&field))
            })
            .unzip();
        Self { name: operation.name().to_owned(), field_names, fields }
    }

    pub(super) fn into_operation(self) -> Operation {
        let fields = self.fields.into_iter().filter_map(FieldMessage::into_field).collect();
        Operation::of(self.name, self.field_names, fields)
    }
}

/// A use of an operation.
#[derive(Message)]
pub(super) struct OperationCallMessage {
    #[prost(uint32, tag = "1")]
    operation: u32,
    #[prost(message, optional, tag = "2")]
    extent: Option<ExtentMessage>,
    #[prost(uint32, optional, tag = "3")]
    step: Option<u32>,
    #[prost(message, optional, tag = "4")]
    owner: Option<OwnerMessage>,
    /// The number of its batch, from 1.
    #[prost(uint32, tag = "5")]
    batch: u32,
}

impl OperationCallMessage {
    pub(super) fn of(trace: &Trace, call: &OperationCallData) -> Self {
        Self {
            operation: call.operation.index() as u32,
            extent: ExtentMessage::of(trace, call.at, call.at, call.track),
            step: call.step.map(|step| step.index() as u32),
            owner: OwnerMessage::of(call.span, call.attribution),
            batch: batch_number(call.batch),
        }
    }

    pub(super) fn add_to(&self, trace: &mut Trace, shared: &mut Shared) -> Option<()> {
        let (at, _, track) = ExtentMessage::resolve(self.extent, trace)?;
        let (span, attribution) = OwnerMessage::resolve(self.owner, trace)?;
        trace.operation_calls.push(OperationCallData {
            operation: OperationId::new(within(self.operation, trace.operations.len())?),
            track,
            at,
            attribution,
            span,
            step: within_if_any(self.step, trace.steps.len())?.map(StepId::new),
            batch: shared.batches.id(self.batch),
        });
        Some(())
    }
}

#[derive(Message)]
pub(super) struct AllocationMessage {
    #[prost(message, optional, tag = "1")]
    extent: Option<ExtentMessage>,
    #[prost(uint32, tag = "2")]
    context: u32,
    #[prost(uint64, tag = "3")]
    address: u64,
    #[prost(uint64, optional, tag = "4")]
    bytes: Option<u64>,
    #[prost(bool, tag = "5")]
    free: bool,
    #[prost(bool, tag = "6")]
    pooled: bool,
    #[prost(message, optional, tag = "7")]
    owner: Option<OwnerMessage>,
    #[prost(bool, tag = "8")]
    by_framework: bool,
}

impl AllocationMessage {
    pub(super) fn of(trace: &Trace, allocation: &AllocationData) -> Self {
        Self {
            extent: ExtentMessage::of(trace, allocation.at, allocation.at, allocation.track),
            context: allocation.context,
            address: allocation.address,
            bytes: allocation.bytes,
            free: allocation.change == MemoryChange::Free,
            pooled: allocation.pooled,
            by_framework: allocation.by_framework,
            owner: OwnerMessage::of(allocation.span, allocation.attribution),
        }
    }

    /// The device and the memory in use are known once the GPU's records have been joined.
    pub(super) fn add_to(self, trace: &mut Trace) -> Option<()> {
        let (at, _, track) = ExtentMessage::resolve(self.extent, trace)?;
        let (span, attribution) = OwnerMessage::resolve(self.owner, trace)?;
        trace.allocations.push(AllocationData {
            at,
            context: self.context,
            device: DeviceId::default(),
            address: self.address,
            bytes: self.bytes,
            change: if self.free { MemoryChange::Free } else { MemoryChange::Allocate },
            pooled: self.pooled,
            by_framework: self.by_framework,
            in_use: 0,
            reserved: 0,
            track,
            attribution,
            span,
        });
        Some(())
    }
}

/// The samples of a device's hardware counters.
#[derive(Message)]
pub(super) struct CountersMessage {
    #[prost(uint32, tag = "1")]
    pub(super) device: u32,
    /// Nanoseconds between two samples.
    #[prost(uint64, tag = "2")]
    pub(super) interval: u64,
    #[prost(string, repeated, tag = "3")]
    pub(super) names: Vec<String>,
    /// The meaning of each metric, as [`MetricMeaning::as_str`] writes it.
    #[prost(string, repeated, tag = "4")]
    pub(super) meanings: Vec<String>,
    /// The starts of samples, in nanoseconds after the end of the one before, and of the first after 1970.
    #[prost(uint64, repeated, tag = "5")]
    pub(super) gaps: Vec<u64>,
    /// The durations of samples in nanoseconds.
    #[prost(uint64, repeated, tag = "6")]
    pub(super) durations: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) values: Vec<f64>,
    #[prost(uint64, tag = "8")]
    pub(super) lost: u64,
    #[prost(string, optional, tag = "9")]
    pub(super) problem: Option<String>,
}

impl CountersMessage {
    pub(super) fn of(counters: &GpuCounters) -> Self {
        let starts = counters.times.iter().map(|(start, _)| start.as_unix_nanos());
        let ends = counters.times.iter().map(|(_, end)| end.as_unix_nanos());
        Self {
            device: counters.device.as_u32(),
            interval: u64::try_from(counters.interval.as_nanos()).unwrap_or(u64::MAX),
            names: counters.metrics.iter().map(|metric| metric.name.clone()).collect(),
            meanings: counters.metrics.iter().map(|metric| metric.meaning.as_str().to_owned()).collect(),
            // Samples may overlap by some nanoseconds.
            gaps: starts
                .clone()
                .zip([0].into_iter().chain(ends.clone()))
                .map(|(at, end)| at.wrapping_sub(end))
                .collect(),
            durations: starts.zip(ends).map(|(start, end)| end.wrapping_sub(start)).collect(),
            values: counters.values.clone(),
            lost: counters.lost,
            problem: counters.problem.clone(),
        }
    }

    /// Returns `None` if the samples are not whole, or not in order.
    pub(super) fn into_counters(self) -> Option<GpuCounters> {
        let Self { device, interval, names, meanings, gaps, durations, values, lost, problem } = self;
        let is_whole = gaps.len() == durations.len() && names.len() == meanings.len();
        let metric =
            |(name, meaning): (String, String)| GpuMetric { name, meaning: MetricMeaning::from_name(&meaning) };
        let mut end = 0_u64;
        let time = |(gap, duration): (u64, u64)| {
            let start = end.wrapping_add(gap);
            end = start.wrapping_add(duration);
            (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end))
        };
        let counters = GpuCounters {
            device: DeviceId::new(device),
            interval: Duration::from_nanos(interval),
            metrics: names.into_iter().zip(meanings).map(metric).collect(),
            times: gaps.into_iter().zip(durations).map(time).collect(),
            values,
            lost,
            problem,
        };
        (is_whole && counters.is_consistent()).then_some(counters)
    }
}
