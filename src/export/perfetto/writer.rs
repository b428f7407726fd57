use super::proto::{
    self, ChildTracksOrdering, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, InternedData, InternedName,
    ProcessDescriptor, SourceLocation, ThreadDescriptor, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
    TrackEventDefaults, Type,
};
use crate::trace::{Callsite, Cut, Event, Fields, Span, Timestamp, Trace, TrackId, Value};
use prost::Message;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Write},
    ops::Range,
};

pub(super) fn write(trace: &Trace, out: impl Write) -> io::Result<()> {
    let mut writer = Writer { trace, out, uuid: uuid(trace), packets: proto::Trace::default(), bytes: Vec::new() };
    writer.process()?;
    writer.steps()?;
    writer.counters()?;
    writer.tracks()?;
    writer.pass_on()
}

/// The first uuid of a trace, so that traces of several ranks can be laid side by side.
fn uuid(trace: &Trace) -> u64 {
    let mut hasher = DefaultHasher::new();
    let metadata = trace.metadata();
    (&metadata.host, metadata.pid, trace.window(), trace.start()).hash(&mut hasher);
    hasher.finish() >> 1
}

struct Writer<'a, W> {
    trace: &'a Trace,
    out: W,
    /// That of the process; those after it are of its tracks.
    uuid: u64,
    packets: proto::Trace,
    bytes: Vec<u8>,
}

impl<'a, W: Write> Writer<'a, W> {
    /// Packets that are encoded at once.
    const BATCH: usize = 256;
    /// Not a sequence of events: descriptors only.
    const DESCRIPTORS: u32 = 1;

    fn packet(&mut self, packet: TracePacket) -> io::Result<()> {
        self.packets.packet.push(packet);
        if self.packets.packet.len() >= Self::BATCH { self.pass_on() } else { Ok(()) }
    }

    /// A trace is the concatenation of its packets, so batches can be written one after the other.
    fn pass_on(&mut self) -> io::Result<()> {
        self.bytes.clear();
        // Into memory that grows, which does not fail.
        let _ = self.packets.encode(&mut self.bytes);
        self.packets.packet.clear();
        self.out.write_all(&self.bytes)
    }

    fn describe(&mut self, track: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket {
            trusted_packet_sequence_id: Some(Self::DESCRIPTORS),
            track_descriptor: Some(track),
            ..TracePacket::default()
        })
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.trace.metadata().pid).unwrap_or(i32::MAX)
    }

    fn process(&mut self) -> io::Result<()> {
        let metadata = self.trace.metadata();
        let mut labels = vec![
            format!("host {}", metadata.host),
            format!("rank {} of {}", metadata.rank, metadata.world_size),
            format!("kernspan {}, window {}", env!("CARGO_PKG_VERSION"), self.trace.window()),
            self.trace.losses().to_string(),
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

    /// A track of the process, in the order of the calls.
    fn track(&mut self, place: u64, name: &str, counter: bool) -> io::Result<u64> {
        let uuid = self.uuid + 1 + place;
        self.describe(TrackDescriptor {
            uuid: Some(uuid),
            name: Some(name.to_owned()),
            parent_uuid: Some(self.uuid),
            counter: counter.then(CounterDescriptor::default),
            sibling_order_rank: i32::try_from(place).ok(),
            ..TrackDescriptor::default()
        })?;
        Ok(uuid)
    }

    fn steps(&mut self) -> io::Result<()> {
        if self.trace.steps().is_empty() && self.trace.losses().is_empty() {
            return Ok(());
        }
        let uuid = self.track(0, "steps", false)?;
        let mut sequence = Sequence::begin(self, 2, uuid)?;
        if !self.trace.losses().is_empty() {
            let name = Some(format!("kernspan {}", self.trace.losses()));
            let event = TrackEvent { r#type: Some(Type::Instant as i32), name, ..TrackEvent::default() };
            sequence.event(self, self.trace.start(), event)?;
        }
        for step in self.trace.steps() {
            let mut event = TrackEvent {
                r#type: Some(Type::SliceBegin as i32),
                name: Some(format!("ProfilerStep#{}", step.number())),
                ..TrackEvent::default()
            };
            sequence.annotate_cut(&mut event, step.cut());
            sequence.event(self, step.start(), event)?;
            sequence.end(self, step.end())?;
        }
        Ok(())
    }

    fn counters(&mut self) -> io::Result<()> {
        for (place, counter) in self.trace.counters().iter().enumerate() {
            let place = place as u64 + 1;
            let uuid = self.track(place, counter.name(), true)?;
            let mut sequence = Sequence::begin(self, 2 + place as u32, uuid)?;
            for &(at, value) in counter.samples() {
                let event = if value.is_finite() {
                    TrackEvent {
                        r#type: Some(Type::Counter as i32),
                        double_counter_value: Some(value),
                        ..TrackEvent::default()
                    }
                } else {
                    // A counter track cannot show it, and it is the sample that matters most.
                    TrackEvent {
                        r#type: Some(Type::Instant as i32),
                        name: Some(format!("{} is {value}", counter.name())),
                        track_uuid: Some(self.uuid),
                        ..TrackEvent::default()
                    }
                };
                sequence.event(self, at, event)?;
            }
        }
        Ok(())
    }

    fn tracks(&mut self) -> io::Result<()> {
        let first = 1 + self.trace.counters().len() as u64;
        let spans = ranges(self.trace, self.trace.spans().map(Span::track_id));
        let events = ranges(self.trace, self.trace.events().map(Event::track_id));
        let mut thread = self.uuid;
        for (place, track) in self.trace.tracks().iter().enumerate() {
            let place_of_track = first + place as u64;
            let uuid = self.uuid + 1 + place_of_track;
            let mut descriptor = TrackDescriptor { uuid: Some(uuid), ..TrackDescriptor::default() };
            if track.overlap() == 0 {
                thread = uuid;
                descriptor.thread = Some(ThreadDescriptor {
                    pid: Some(self.pid()),
                    tid: i64::try_from(track.thread().as_u64()).ok(),
                    thread_name: Some(track.thread_name().to_owned()),
                });
            } else {
                descriptor.parent_uuid = Some(thread);
                descriptor.name = Some(track.label());
            }
            self.describe(descriptor)?;
            let sequence = Sequence::begin(self, 2 + place_of_track as u32, uuid)?;
            let (spans, events) = (spans[place].clone(), events[place].clone());
            let spans = self.trace.spans().skip(spans.start).take(spans.len());
            let events = self.trace.events().skip(events.start).take(events.len());
            let here = TrackId::new(place);
            self.slices(
                sequence,
                spans.filter(|span| span.track_id() == here),
                events.filter(|event| event.track_id() == here),
            )?;
        }
        Ok(())
    }

    /// Begins and ends in order of time, from spans that nest.
    fn slices<'s>(
        &mut self,
        mut sequence: Sequence,
        spans: impl Iterator<Item = Span<'s>>,
        events: impl Iterator<Item = Event<'s>>,
    ) -> io::Result<()> {
        let mut open: Vec<Timestamp> = Vec::new();
        let mut spans = spans.peekable();
        let mut events = events.peekable();
        loop {
            let next_span = spans.peek().map(|span| span.start());
            let next_event = events.peek().map(|event| event.at());
            let next = match (next_span, next_event) {
                (Some(span), Some(event)) => span.min(event),
                (span, event) => match span.or(event) {
                    Some(next) => next,
                    None => break,
                },
            };
            while let Some(end) = open.pop_if(|end| *end <= next) {
                sequence.end(self, end)?;
            }
            if next_span == Some(next)
                && let Some(span) = spans.next()
            {
                let mut event = sequence.at_callsite(Type::SliceBegin, span.callsite_id().index(), span.callsite());
                sequence.annotate(&mut event, span.fields(), None);
                sequence.annotate_cut(&mut event, span.cut());
                if !span.backtrace().is_empty() {
                    let stack = Value::Str(span.backtrace().join("\n").into());
                    sequence.annotate_one(&mut event, "backtrace", &stack);
                }
                sequence.event(self, next, event)?;
                open.push(span.end());
            } else if let Some(instant) = events.next() {
                let mut event = TrackEvent {
                    r#type: Some(Type::Instant as i32),
                    name: Some(instant.message().to_owned()),
                    ..TrackEvent::default()
                };
                sequence.annotate(&mut event, instant.fields(), Some("message"));
                let level = Value::Str(instant.callsite().level().to_string().into());
                sequence.annotate_one(&mut event, "level", &level);
                sequence.event(self, next, event)?;
            }
        }
        while let Some(end) = open.pop() {
            sequence.end(self, end)?;
        }
        Ok(())
    }
}

/// Where the things of each track lie among all: those of a thread lie together.
fn ranges(trace: &Trace, tracks: impl Iterator<Item = TrackId>) -> Vec<Range<usize>> {
    let mut ranges = vec![0..0; trace.tracks().len()];
    for (place, track) in tracks.enumerate() {
        let range = &mut ranges[track.index()];
        range.start = if range.end == 0 { place } else { range.start };
        range.end = place + 1;
    }
    ranges
}

/// One track's packets. Times are relative to the packet before, and names are numbers once they have been written.
struct Sequence {
    id: u32,
    now: Timestamp,
    callsites: Vec<bool>,
    names: HashMap<String, u64>,
    texts: HashMap<String, u64>,
    /// Names to be written with the next event.
    new: Option<InternedData>,
}

impl Sequence {
    /// Texts that are given a number: what differs every time is not worth one.
    const TEXTS: usize = 1024;

    fn begin<W: Write>(writer: &mut Writer<'_, W>, id: u32, track: u64) -> io::Result<Self> {
        let start = writer.trace.start();
        let clock = |clock_id, is_incremental| Clock {
            clock_id: Some(clock_id),
            timestamp: Some(start.as_unix_nanos()),
            is_incremental,
        };
        writer.packet(TracePacket {
            trusted_packet_sequence_id: Some(id),
            sequence_flags: Some(proto::SEQ_INCREMENTAL_STATE_CLEARED),
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![
                    // Perfetto's own clock; one that is wall-clock time as well makes its times readable.
                    clock(proto::CLOCK_BOOTTIME, None),
                    clock(proto::CLOCK_REALTIME, None),
                    clock(proto::CLOCK_INCREMENTAL, Some(true)),
                ],
            }),
            timestamp: Some(start.as_unix_nanos()),
            timestamp_clock_id: Some(proto::CLOCK_BOOTTIME),
            trace_packet_defaults: Some(TracePacketDefaults {
                track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(track) }),
                timestamp_clock_id: Some(proto::CLOCK_INCREMENTAL),
            }),
            ..TracePacket::default()
        })?;
        let callsites = vec![false; writer.trace.callsites().len()];
        Ok(Self { id, now: start, callsites, names: HashMap::new(), texts: HashMap::new(), new: None })
    }

    fn event<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp, event: TrackEvent) -> io::Result<()> {
        let delta = at.as_unix_nanos().saturating_sub(self.now.as_unix_nanos());
        self.now = self.now.max(at);
        let ends = event.r#type == Some(Type::SliceEnd as i32);
        writer.packet(TracePacket {
            timestamp: Some(delta),
            trusted_packet_sequence_id: Some(self.id),
            track_event: Some(event),
            interned_data: self.new.take(),
            // Two bytes that an end, which names nothing, can do without.
            sequence_flags: (!ends).then_some(proto::SEQ_NEEDS_INCREMENTAL_STATE),
            ..TracePacket::default()
        })
    }

    fn end<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp) -> io::Result<()> {
        self.event(writer, at, TrackEvent { r#type: Some(Type::SliceEnd as i32), ..TrackEvent::default() })
    }

    /// An event named after its callsite; the callsite's place is the number of its name and location.
    fn at_callsite(&mut self, r#type: Type, place: usize, callsite: &Callsite) -> TrackEvent {
        let iid = Some(place as u64 + 1);
        if !std::mem::replace(&mut self.callsites[place], true) {
            let new = self.new.get_or_insert_default();
            new.event_names.push(InternedName { iid, name: Some(callsite.name().to_owned()) });
            new.source_locations.push(SourceLocation {
                iid,
                file_name: callsite.file().map(str::to_owned),
                function_name: Some(format!("{}::{}", callsite.target(), callsite.name())),
                line_number: callsite.line(),
            });
        }
        TrackEvent { r#type: Some(r#type as i32), name_iid: iid, source_location_iid: iid, ..TrackEvent::default() }
    }

    fn annotate(&mut self, event: &mut TrackEvent, fields: Fields<'_>, except: Option<&str>) {
        for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
            self.annotate_one(event, name, value);
        }
    }

    fn annotate_cut(&mut self, event: &mut TrackEvent, cut: Cut) {
        if cut.start {
            self.annotate_one(event, "started", &Value::Bool(false));
        }
        if cut.end {
            self.annotate_one(event, "finished", &Value::Bool(false));
        }
    }

    fn annotate_one(&mut self, event: &mut TrackEvent, name: &str, value: &Value) {
        let mut annotation = DebugAnnotation { name_iid: Some(self.name(name)), ..DebugAnnotation::default() };
        match value {
            Value::Bool(value) => annotation.bool_value = Some(*value),
            Value::I64(value) => annotation.int_value = Some(*value),
            Value::U64(value) => annotation.uint_value = Some(*value),
            Value::F64(value) => annotation.double_value = Some(*value),
            Value::Str(text) => match self.text(text) {
                Some(iid) => annotation.string_value_iid = Some(iid),
                None => annotation.string_value = Some(text.to_string()),
            },
        }
        event.debug_annotations.push(annotation);
    }

    fn name(&mut self, name: &str) -> u64 {
        if let Some(&iid) = self.names.get(name) {
            return iid;
        }
        let iid = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), iid);
        let name = InternedName { iid: Some(iid), name: Some(name.to_owned()) };
        self.new.get_or_insert_default().debug_annotation_names.push(name);
        iid
    }

    fn text(&mut self, text: &str) -> Option<u64> {
        if let Some(&iid) = self.texts.get(text) {
            return Some(iid);
        }
        if self.texts.len() >= Self::TEXTS {
            return None;
        }
        let iid = self.texts.len() as u64 + 1;
        self.texts.insert(text.to_owned(), iid);
        let text = InternedName { iid: Some(iid), name: Some(text.to_owned()) };
        self.new.get_or_insert_default().debug_annotation_string_values.push(text);
        Some(iid)
    }
}
