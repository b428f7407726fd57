//! The tracks of a trace, and their places in the tree that Perfetto shows.

use super::{
    packets::PacketWriter,
    proto::{ChildTracksOrdering, CounterDescriptor, ProcessDescriptor, TracePacket, TrackDescriptor},
    sequence::Sequence,
};
use crate::trace::{Trace, WorkId};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
};

/// Describes tracks and begins the sequences of their events.
pub(super) struct TrackWriter<'a> {
    pub(super) trace: &'a Trace,
    pub(super) packets: PacketWriter<'a>,
    /// The uuid of the process. Tracks have those after it, and the ids of flows are counted from it, too.
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

    /// The id of the flow from a call to a piece of its work. It differs between ranks, whose traces may be opened
    /// together.
    pub(super) fn flow(&self, work: WorkId) -> u64 {
        self.uuid + work.index() as u64
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

    /// Describes the process, which all other tracks are in.
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
            process_name: Some(metadata.process.clone()),
            process_labels: labels,
        };
        self.describe(TrackDescriptor {
            uuid: Some(self.uuid),
            process: Some(process),
            child_ordering: Some(ChildTracksOrdering::Explicit as i32),
            ..TrackDescriptor::default()
        })
    }

    /// Describes a track, which is shown after those before it, and returns its uuid. `descriptor` says neither of
    /// these.
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

    /// Begins the events of the track that was described last.
    pub(super) fn sequence(&mut self, track: u64) -> io::Result<Sequence> {
        Sequence::begin(&mut self.packets, self.trace, Self::DESCRIPTORS + self.tracks, track)
    }
}

/// The first uuid of a trace. It differs between ranks, whose traces may be opened together.
fn uuid(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = trace.metadata();
    (&metadata.host, metadata.pid, trace.window(), trace.start()).hash(&mut hasher);
    hasher.finish() >> 1
}
