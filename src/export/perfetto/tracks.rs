//! Descriptors of tracks, which make up the tree that Perfetto shows.

use super::{
    compute_proto::GpuInfo,
    proto::{ChildTracksOrdering, CounterDescriptor, PacketWriter, ProcessDescriptor, TracePacket, TrackDescriptor},
    sequence::Sequence,
};
use crate::trace::{SpanId, Trace, WorkId};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
};

/// A writer of track descriptors. It also begins the sequences of the tracks' events.
pub(super) struct TrackWriter<'a> {
    pub(super) trace: &'a Trace,
    pub(super) packets: PacketWriter<'a>,
    /// The uuid of the process. The uuids of tracks and the ids of flows are counted from it.
    pub(super) uuid: u64,
    /// The number of tracks so far.
    tracks: u32,
}

impl<'a> TrackWriter<'a> {
    /// The sequence that has no events, only descriptors.
    const DESCRIPTORS: u32 = 1;

    pub(super) fn new(trace: &'a Trace, out: &'a mut dyn Write) -> Self {
        Self { trace, packets: PacketWriter::new(out), uuid: uuid(trace), tracks: 0 }
    }

    /// Returns the id of the flow from a call to a piece of its work. It differs between ranks, whose traces may be
    /// opened together.
    pub(super) fn flow(&self, work: WorkId) -> u64 {
        self.uuid + work.index() as u64
    }

    /// Returns the id of the flow from an enter of a call to the next. It differs from those of work.
    pub(super) fn call_flow(&self, span: SpanId) -> u64 {
        self.uuid + (self.trace.work().len() + span.index()) as u64
    }

    /// Returns the id of the flow of this number between spans that the trace links. It differs from those of calls.
    pub(super) fn linked_flow(&self, flow: usize) -> u64 {
        self.uuid + (self.trace.work().len() + self.trace.spans().len() + flow) as u64
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.trace.metadata().pid).unwrap_or(i32::MAX)
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packets.packet(TracePacket {
            trusted_packet_sequence_id: Some(Self::DESCRIPTORS),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    /// Describes the process, which is the parent of the tracks.
    pub(super) fn process(&mut self) -> io::Result<()> {
        let metadata = self.trace.metadata();
        let mut labels = vec![
            format!("host {}", metadata.host),
            format!("rank {} of {}", metadata.rank, metadata.world_size),
            format!("kernspan {}, window {}", env!("CARGO_PKG_VERSION"), self.trace.window()),
            self.trace.losses().to_string(),
            self.trace.gpu().to_string(),
        ];
        labels.extend(metadata.user.iter().map(|(key, value)| format!("{key}: {value}")));
        let process = ProcessDescriptor {
            pid: Some(self.pid()),
            process_name: Some(metadata.process.clone()).filter(|name| !name.is_empty()),
            process_labels: labels,
        };
        self.describe(TrackDescriptor {
            uuid: Some(self.uuid),
            process: Some(process),
            child_ordering: Some(ChildTracksOrdering::Explicit as i32),
            ..TrackDescriptor::default()
        })
    }

    /// Describes a track, and returns its uuid. The uuid and the order of the track among its siblings, which is the
    /// order of these calls, are added to `descriptor`.
    pub(super) fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        let uuid = self.uuid + 1 + u64::from(self.tracks);
        let sibling_order_rank = i32::try_from(self.tracks).ok();
        self.tracks += 1;
        self.describe(TrackDescriptor { uuid: Some(uuid), sibling_order_rank, ..descriptor })?;
        Ok(uuid)
    }

    /// Begins a track of events inside `parent`.
    pub(super) fn child(&mut self, parent: u64, name: String) -> io::Result<Sequence> {
        let descriptor = TrackDescriptor { name: Some(name), parent_uuid: Some(parent), ..TrackDescriptor::default() };
        let uuid = self.track(descriptor)?;
        self.sequence(uuid)
    }

    /// Begins a track of a counter's samples inside `parent`.
    pub(super) fn counter(&mut self, parent: u64, name: String, counter: CounterDescriptor) -> io::Result<Sequence> {
        let uuid = self.track(TrackDescriptor {
            name: Some(name),
            parent_uuid: Some(parent),
            counter: Some(counter),
            ..TrackDescriptor::default()
        })?;
        self.sequence(uuid)
    }

    /// Begins a sequence of packets that are on no track of ours.
    pub(super) fn trackless(&mut self) -> io::Result<Sequence> {
        self.tracks += 1;
        self.sequence(self.uuid)
    }

    /// Writes the descriptions of GPUs.
    pub(super) fn gpu_info(&mut self, gpu_info: GpuInfo) -> io::Result<()> {
        self.packets.packet(TracePacket {
            trusted_packet_sequence_id: Some(Self::DESCRIPTORS),
            gpu_info: Some(gpu_info),
            ..TracePacket::default()
        })
    }

    /// Returns the number of a sequence that has no track.
    pub(super) fn new_sequence(&mut self) -> u32 {
        self.tracks += 1;
        Self::DESCRIPTORS + self.tracks
    }

    /// Begins the events of the track that was described last.
    pub(super) fn sequence(&mut self, track: u64) -> io::Result<Sequence> {
        Sequence::begin(&mut self.packets, self.trace, Self::DESCRIPTORS + self.tracks, track)
    }
}

/// Returns the uuid of the process of a trace. It differs between ranks, whose traces may be opened together.
fn uuid(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = trace.metadata();
    (&metadata.host, metadata.pid, trace.window(), trace.start()).hash(&mut hasher);
    hasher.finish() >> 1
}
