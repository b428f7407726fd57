use super::{
    event::Event,
    proto::{ChildTracksOrdering, CounterDescriptor, ProcessDescriptor, TracePacket, TrackDescriptor, Type},
    sequence::Sequence,
};
use crate::{
    export::{flows::Flows, wire},
    trace::Trace,
};
use prost::Message;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
};

pub(super) fn write(trace: &Trace, out: impl Write) -> io::Result<()> {
    let flows = Flows::new(trace);
    let mut writer = Writer { trace, out, uuid: uuid(trace), tracks: 0, bytes: Vec::new() };
    writer.process()?;
    writer.steps()?;
    writer.counters()?;
    writer.threads(&flows)?;
    writer.gpus(&flows)?;
    writer.pass_on()
}

/// The first uuid of a trace, so that traces of several ranks can be laid side by side.
fn uuid(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = trace.metadata();
    (&metadata.host, metadata.pid, trace.window(), trace.start()).hash(&mut hasher);
    hasher.finish() >> 1
}

pub(super) struct Writer<'a, W> {
    pub(super) trace: &'a Trace,
    out: W,
    /// That of the process; those after it are of the tracks, and flows have theirs from it too.
    pub(super) uuid: u64,
    /// How many tracks there are.
    tracks: u32,
    /// Packets to be passed on. A trace is no more than one after the other.
    bytes: Vec<u8>,
}

impl<W: Write> Writer<'_, W> {
    /// Bytes that are passed on at once.
    const BATCH: usize = 1 << 16;
    /// Not a sequence of events: descriptors only.
    const DESCRIPTORS: u32 = 1;

    pub(super) fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.encoded(|out| packet.encode_raw(out))
    }

    /// A packet that is written by hand.
    pub(super) fn encoded(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        wire::message(&mut self.bytes, 1, write);
        if self.bytes.len() >= Self::BATCH { self.pass_on() } else { Ok(()) }
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket {
            trusted_packet_sequence_id: Some(Self::DESCRIPTORS),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.trace.metadata().pid).unwrap_or(i32::MAX)
    }

    fn process(&mut self) -> io::Result<()> {
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

    /// A track, after those before; the place that `descriptor` leaves open is its own. Returns its uuid.
    pub(super) fn track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        let uuid = self.uuid + 1 + u64::from(self.tracks);
        let sibling_order_rank = i32::try_from(self.tracks).ok();
        self.tracks += 1;
        self.describe(TrackDescriptor { uuid: Some(uuid), sibling_order_rank, ..descriptor })?;
        Ok(uuid)
    }

    /// A track with events, in `parent`.
    pub(super) fn child(&mut self, parent: u64, name: String) -> io::Result<Sequence> {
        let descriptor = TrackDescriptor { name: Some(name), parent_uuid: Some(parent), ..TrackDescriptor::default() };
        let uuid = self.track(descriptor)?;
        self.sequence(uuid)
    }

    /// The same, for a counter.
    pub(super) fn counter(&mut self, parent: u64, name: String, counter: CounterDescriptor) -> io::Result<Sequence> {
        let uuid = self.track(TrackDescriptor {
            name: Some(name),
            parent_uuid: Some(parent),
            counter: Some(counter),
            ..TrackDescriptor::default()
        })?;
        self.sequence(uuid)
    }

    /// The events of the track that was described last.
    pub(super) fn sequence(&mut self, track: u64) -> io::Result<Sequence> {
        Sequence::begin(self, Self::DESCRIPTORS + self.tracks, track)
    }

    fn steps(&mut self) -> io::Result<()> {
        if self.trace.steps().is_empty() && self.trace.losses().is_empty() {
            return Ok(());
        }
        let mut sequence = self.child(self.uuid, "steps".to_owned())?;
        if !self.trace.losses().is_empty() {
            let name = format!("kernspan {}", self.trace.losses());
            let event = Event::new(Type::Instant, Event::default()).name(&name);
            sequence.instant(self, self.trace.start(), event)?;
        }
        for step in self.trace.steps() {
            let name = format!("ProfilerStep#{}", step.number());
            let mut event = Event::new(Type::SliceBegin, Event::default()).name(&name);
            sequence.annotate_cut(&mut event, step.cut());
            sequence.slice(self, step.start(), step.end(), event)?;
        }
        sequence.finish(self)
    }

    fn counters(&mut self) -> io::Result<()> {
        for counter in self.trace.counters() {
            let mut sequence = self.counter(self.uuid, counter.name().to_owned(), CounterDescriptor::default())?;
            for &(at, value) in counter.samples() {
                if value.is_finite() {
                    sequence.count(self, at, value)?;
                    continue;
                }
                // A counter track cannot show it, and it is the sample that matters most.
                let name = format!("{} is {value}", counter.name());
                let event = Event::new(Type::Instant, Event::default()).name(&name).track(self.uuid);
                sequence.instant(self, at, event)?;
            }
        }
        Ok(())
    }
}
