//! Messages of Perfetto's trace format, with the fields that are set here, and the packets that a trace consists of.

use super::compute_proto::{
    GpuInfo, GpuRenderStageEvent, InternedComputeKernel, InternedGpuSpecification, InternedGraphicsContext,
};
use crate::export::wire;
use prost::{Enumeration, Message};
use std::io::{self, Write};

/// A whole file, as tests read it. It is written packet by packet.
#[cfg(test)]
#[derive(Message)]
pub(super) struct Trace {
    #[prost(message, repeated, tag = "1")]
    pub(super) packet: Vec<TracePacket>,
}

#[derive(Message)]
pub(super) struct TracePacket {
    #[prost(message, optional, tag = "6")]
    pub(super) clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "11")]
    pub(super) track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "53")]
    pub(super) gpu_render_stage_event: Option<GpuRenderStageEvent>,
    #[prost(uint32, optional, tag = "58")]
    pub(super) timestamp_clock_id: Option<u32>,
    #[prost(message, optional, tag = "59")]
    pub(super) trace_packet_defaults: Option<TracePacketDefaults>,
    #[prost(message, optional, tag = "60")]
    pub(super) track_descriptor: Option<TrackDescriptor>,
    #[prost(message, optional, tag = "128")]
    pub(super) gpu_info: Option<GpuInfo>,
}

pub(super) const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
pub(super) const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

#[derive(Message)]
pub(super) struct TracePacketDefaults {
    #[prost(message, optional, tag = "11")]
    pub(super) track_event_defaults: Option<TrackEventDefaults>,
    #[prost(uint32, optional, tag = "58")]
    pub(super) timestamp_clock_id: Option<u32>,
}

#[derive(Message)]
pub(super) struct TrackEventDefaults {
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
}

#[derive(Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
}

#[derive(Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(super) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) timestamp: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    pub(super) is_incremental: Option<bool>,
}

pub(super) const CLOCK_REALTIME: u32 = 1;
pub(super) const CLOCK_BOOTTIME: u32 = 6;
/// The first of the clock ids that a sequence may define.
pub(super) const CLOCK_INCREMENTAL: u32 = 64;

#[derive(Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
    #[prost(enumeration = "ChildTracksOrdering", optional, tag = "11")]
    pub(super) child_ordering: Option<i32>,
    #[prost(int32, optional, tag = "12")]
    pub(super) sibling_order_rank: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum ChildTracksOrdering {
    Unknown = 0,
    Explicit = 3,
}

#[derive(Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
    #[prost(string, repeated, tag = "8")]
    pub(super) process_labels: Vec<String>,
}

#[derive(Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(super) thread_name: Option<String>,
}

#[derive(Message)]
pub(super) struct CounterDescriptor {
    #[prost(enumeration = "Unit", optional, tag = "3")]
    pub(super) unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) unit_name: Option<String>,
    /// Tracks with the same key have the same scale.
    #[prost(string, optional, tag = "7")]
    pub(super) y_axis_share_key: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Unit {
    Unspecified = 0,
    SizeBytes = 3,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(super) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "Type", optional, tag = "9")]
    pub(super) r#type: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(uint64, optional, tag = "34")]
    pub(super) source_location_iid: Option<u64>,
    #[prost(double, optional, tag = "44")]
    pub(super) double_counter_value: Option<f64>,
    #[prost(fixed64, repeated, packed = "false", tag = "47")]
    pub(super) flow_ids: Vec<u64>,
    #[prost(fixed64, repeated, packed = "false", tag = "48")]
    pub(super) terminating_flow_ids: Vec<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub(super) enum Type {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub(super) bool_value: Option<bool>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) uint_value: Option<u64>,
    #[prost(int64, optional, tag = "4")]
    pub(super) int_value: Option<i64>,
    #[prost(double, optional, tag = "5")]
    pub(super) double_value: Option<f64>,
    #[prost(string, optional, tag = "6")]
    pub(super) string_value: Option<String>,
    #[prost(uint64, optional, tag = "17")]
    pub(super) string_value_iid: Option<u64>,
}

#[derive(Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<InternedName>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "4")]
    pub(super) source_locations: Vec<SourceLocation>,
    #[prost(message, repeated, tag = "23")]
    pub(super) graphics_contexts: Vec<InternedGraphicsContext>,
    #[prost(message, repeated, tag = "24")]
    pub(super) gpu_specifications: Vec<InternedGpuSpecification>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<InternedName>,
    #[prost(message, repeated, tag = "1000")]
    pub(super) compute_kernels: Vec<InternedComputeKernel>,
    #[prost(message, repeated, tag = "1001")]
    pub(super) compute_arg_names: Vec<InternedName>,
}

/// `EventCategory`, `EventName`, `DebugAnnotationName`, `InternedString` or `InternedComputeArgName`, which are the
/// same on the wire.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

#[derive(Message)]
pub(super) struct SourceLocation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) file_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub(super) function_name: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) line_number: Option<u32>,
}

/// A buffered writer of packets. A trace is simply a sequence of packets.
pub(super) struct PacketWriter<'a> {
    out: &'a mut dyn Write,
    /// Packets that are passed on to `out` once they are large enough.
    bytes: Vec<u8>,
}

impl<'a> PacketWriter<'a> {
    /// The number of bytes passed on at a time.
    const BATCH: usize = 1 << 16;

    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, bytes: Vec::new() }
    }

    pub(super) fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.encoded(|out| packet.encode_raw(out))
    }

    /// Writes a packet that is another message on the same wire.
    pub(super) fn message(&mut self, packet: &impl Message) -> io::Result<()> {
        self.encoded(|out| packet.encode_raw(out))
    }

    /// Writes a packet whose fields are encoded by hand.
    pub(super) fn encoded(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        wire::message(&mut self.bytes, 1, write);
        if self.bytes.len() >= Self::BATCH { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }
}
