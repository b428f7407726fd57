use super::{
    event::{Event, Noted},
    proto::{
        self, Clock, ClockSnapshot, InternedData, InternedName, SourceLocation, TracePacket, TracePacketDefaults,
        TrackEventDefaults, Type,
    },
    writer::Writer,
};
use crate::{
    export::wire,
    trace::{Attribution, Callsite, CallsiteId, Cut, Fields, Span, Timestamp, Value},
};
use prost::Message;
use rustc_hash::FxHashMap;
use std::io::{self, Write};

/// One track's packets. Times are relative to the packet before, and names are numbers once they have been written.
pub(super) struct Sequence {
    id: u32,
    now: Timestamp,
    /// The ends of the slices that are open, outermost first.
    open: Vec<Timestamp>,
    callsites: Vec<bool>,
    events: FxHashMap<String, u64>,
    names: FxHashMap<String, u64>,
    texts: FxHashMap<String, u64>,
    /// Whether the category of operations, the only one there is, has been written.
    operations: bool,
    /// What is said of the spans of a callsite where they are a thing's cause.
    causes: FxHashMap<(Option<CallsiteId>, Attribution), Event>,
    /// Names to be written with the next event.
    new: Option<InternedData>,
    /// The event that was written last, for its memory.
    used: Event,
}

impl Sequence {
    /// Texts that are given a number: what differs every time is not worth one.
    const TEXTS: usize = 1024;

    pub(super) fn begin<W: Write>(writer: &mut Writer<'_, W>, id: u32, track: u64) -> io::Result<Self> {
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
        Ok(Self {
            id,
            now: start,
            open: Vec::new(),
            callsites,
            events: FxHashMap::default(),
            names: FxHashMap::default(),
            texts: FxHashMap::default(),
            operations: false,
            causes: FxHashMap::default(),
            new: None,
            used: Event::default(),
        })
    }

    /// A packet with an event; an end, which names nothing, can do without the two bytes of `flags`.
    fn write<W: Write>(
        &mut self,
        writer: &mut Writer<'_, W>,
        at: Timestamp,
        event: &[u8],
        flags: Option<u32>,
    ) -> io::Result<()> {
        let delta = at.as_unix_nanos().saturating_sub(self.now.as_unix_nanos());
        self.now = self.now.max(at);
        let (id, new) = (self.id, self.new.take());
        writer.encoded(|out| {
            wire::number(out, 8, delta);
            wire::number(out, 10, id.into());
            wire::bytes(out, 11, event);
            if let Some(new) = new {
                wire::message(out, 12, |out| new.encode_raw(out));
            }
            if let Some(flags) = flags {
                wire::number(out, 13, flags.into());
            }
        })
    }

    fn event<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp, event: Event) -> io::Result<()> {
        self.write(writer, at, event.as_bytes(), Some(proto::SEQ_NEEDS_INCREMENTAL_STATE))?;
        self.used = event;
        Ok(())
    }

    /// A new event.
    pub(super) fn make(&mut self, kind: Type) -> Event {
        Event::new(kind, std::mem::take(&mut self.used))
    }

    /// The same event again.
    pub(super) fn again(&mut self, event: &Event) -> Event {
        event.again(std::mem::take(&mut self.used))
    }

    /// Begins a slice, which is ended by what comes after it. Slices nest and come in the order of their starts.
    pub(super) fn slice<W: Write>(
        &mut self,
        writer: &mut Writer<'_, W>,
        start: Timestamp,
        end: Timestamp,
        event: Event,
    ) -> io::Result<()> {
        self.end_until(writer, start)?;
        self.open.push(end);
        self.event(writer, start, event)
    }

    pub(super) fn instant<W: Write>(
        &mut self,
        writer: &mut Writer<'_, W>,
        at: Timestamp,
        event: Event,
    ) -> io::Result<()> {
        self.end_until(writer, at)?;
        self.event(writer, at, event)
    }

    /// A sample of a counter.
    pub(super) fn count<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp, value: f64) -> io::Result<()> {
        let event = self.make(Type::Counter).counter_value(value);
        self.event(writer, at, event)
    }

    /// Ends what is still open.
    pub(super) fn finish<W: Write>(mut self, writer: &mut Writer<'_, W>) -> io::Result<()> {
        self.end_until(writer, Timestamp::from_unix_nanos(u64::MAX))
    }

    fn end_until<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp) -> io::Result<()> {
        while let Some(end) = self.open.pop_if(|end| *end <= at) {
            self.write(writer, end, &Event::SLICE_END, None)?;
        }
        Ok(())
    }

    /// The beginning of a slice named after its callsite; the callsite's place is the number of its name and location.
    pub(super) fn at_callsite(&mut self, place: usize, callsite: &Callsite) -> Event {
        let iid = place as u64 + 1;
        if !std::mem::replace(&mut self.callsites[place], true) {
            let new = self.new.get_or_insert_default();
            new.event_names.push(InternedName { iid: Some(iid), name: Some(callsite.name().to_owned()) });
            new.source_locations.push(SourceLocation {
                iid: Some(iid),
                file_name: callsite.file().map(str::to_owned),
                function_name: Some(format!("{}::{}", callsite.target(), callsite.name())),
                line_number: callsite.line(),
            });
        }
        self.make(Type::SliceBegin).interned_name(iid).source_location(iid)
    }

    /// The beginning of a slice that comes again and again, by its name.
    pub(super) fn named(&mut self, name: &str) -> Event {
        let iid = self.event_name(name);
        self.make(Type::SliceBegin).interned_name(iid)
    }

    /// An operation that a framework was asked for.
    pub(super) fn operation(&mut self, name: &str) -> Event {
        const CATEGORY: u64 = 1;
        if !std::mem::replace(&mut self.operations, true) {
            let category = InternedName { iid: Some(CATEGORY), name: Some("operation".to_owned()) };
            self.new.get_or_insert_default().event_categories.push(category);
        }
        let iid = self.event_name(name);
        self.make(Type::Instant).interned_name(iid).category(CATEGORY)
    }

    fn event_name(&mut self, name: &str) -> u64 {
        self.events.get(name).copied().unwrap_or_else(|| {
            // After those of the callsites.
            let iid = (self.callsites.len() + self.events.len()) as u64 + 1;
            self.events.insert(name.to_owned(), iid);
            let name = InternedName { iid: Some(iid), name: Some(name.to_owned()) };
            self.new.get_or_insert_default().event_names.push(name);
            iid
        })
    }

    pub(super) fn annotate(&mut self, event: &mut Event, fields: Fields<'_>, except: Option<&str>) {
        for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
            self.annotate_one(event, name, value);
        }
    }

    pub(super) fn annotate_cut(&mut self, event: &mut Event, cut: Cut) {
        if cut.start {
            self.annotate_one(event, "started", &Value::Bool(false));
        }
        if cut.end {
            self.annotate_one(event, "finished", &Value::Bool(false));
        }
    }

    /// Which span a thing of the GPU belongs to, and how that is known.
    pub(super) fn annotate_cause(&mut self, event: &mut Event, span: Option<Span<'_>>, how: Attribution) {
        let cause = (span.map(Span::callsite_id), how);
        if let Some(said) = self.causes.get(&cause) {
            return event.extend(said);
        }
        let mut said = Event::default();
        if let Some(span) = span {
            self.annotate_text(&mut said, "span", span.name());
        }
        self.annotate_text(&mut said, "attribution", how.as_str());
        event.extend(&said);
        self.causes.insert(cause, said);
    }

    pub(super) fn annotate_one(&mut self, event: &mut Event, name: &str, value: &Value) {
        let value = match value {
            Value::Bool(value) => Noted::Bool(*value),
            Value::I64(value) => Noted::I64(*value),
            Value::U64(value) => Noted::U64(*value),
            Value::F64(value) => Noted::F64(*value),
            Value::Str(text) => return self.annotate_text(event, name, text),
        };
        event.annotate(self.name(name), value);
    }

    pub(super) fn annotate_text(&mut self, event: &mut Event, name: &str, text: &str) {
        let name_iid = self.name(name);
        event.annotate(name_iid, self.text(text).map_or(Noted::Text(text), Noted::Interned));
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
