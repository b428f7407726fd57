use super::{
    proto::{
        self, Clock, ClockSnapshot, DebugAnnotation, InternedData, InternedName, SourceLocation, TracePacket,
        TracePacketDefaults, TrackEvent, TrackEventDefaults, Type,
    },
    writer::Writer,
};
use crate::trace::{Attribution, Callsite, Cut, Fields, Span, Timestamp, Value};
use std::{
    collections::HashMap,
    io::{self, Write},
};

/// One track's packets. Times are relative to the packet before, and names are numbers once they have been written.
pub(super) struct Sequence {
    id: u32,
    now: Timestamp,
    /// The ends of the slices that are open, outermost first.
    open: Vec<Timestamp>,
    callsites: Vec<bool>,
    events: HashMap<String, u64>,
    names: HashMap<String, u64>,
    texts: HashMap<String, u64>,
    /// Names to be written with the next event.
    new: Option<InternedData>,
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
        let (events, names, texts) = (HashMap::new(), HashMap::new(), HashMap::new());
        Ok(Self { id, now: start, open: Vec::new(), callsites, events, names, texts, new: None })
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

    /// Begins a slice, which is ended by what comes after it. Slices nest and come in the order of their starts.
    pub(super) fn slice<W: Write>(
        &mut self,
        writer: &mut Writer<'_, W>,
        start: Timestamp,
        end: Timestamp,
        event: TrackEvent,
    ) -> io::Result<()> {
        self.end_until(writer, start)?;
        self.open.push(end);
        self.event(writer, start, event)
    }

    pub(super) fn instant<W: Write>(
        &mut self,
        writer: &mut Writer<'_, W>,
        at: Timestamp,
        event: TrackEvent,
    ) -> io::Result<()> {
        self.end_until(writer, at)?;
        self.event(writer, at, event)
    }

    /// A sample of a counter.
    pub(super) fn count<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp, value: f64) -> io::Result<()> {
        let double_counter_value = Some(value);
        let r#type = Some(Type::Counter as i32);
        self.event(writer, at, TrackEvent { r#type, double_counter_value, ..TrackEvent::default() })
    }

    /// Ends what is still open.
    pub(super) fn finish<W: Write>(mut self, writer: &mut Writer<'_, W>) -> io::Result<()> {
        self.end_until(writer, Timestamp::from_unix_nanos(u64::MAX))
    }

    fn end_until<W: Write>(&mut self, writer: &mut Writer<'_, W>, at: Timestamp) -> io::Result<()> {
        while let Some(end) = self.open.pop_if(|end| *end <= at) {
            self.event(writer, end, TrackEvent { r#type: Some(Type::SliceEnd as i32), ..TrackEvent::default() })?;
        }
        Ok(())
    }

    /// The beginning of a slice named after its callsite; the callsite's place is the number of its name and location.
    pub(super) fn at_callsite(&mut self, place: usize, callsite: &Callsite) -> TrackEvent {
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
        let r#type = Some(Type::SliceBegin as i32);
        TrackEvent { r#type, name_iid: iid, source_location_iid: iid, ..TrackEvent::default() }
    }

    /// The beginning of a slice that comes again and again, by its name.
    pub(super) fn named(&mut self, name: &str) -> TrackEvent {
        let iid = self.events.get(name).copied().unwrap_or_else(|| {
            // After those of the callsites.
            let iid = (self.callsites.len() + self.events.len()) as u64 + 1;
            self.events.insert(name.to_owned(), iid);
            let name = InternedName { iid: Some(iid), name: Some(name.to_owned()) };
            self.new.get_or_insert_default().event_names.push(name);
            iid
        });
        TrackEvent { r#type: Some(Type::SliceBegin as i32), name_iid: Some(iid), ..TrackEvent::default() }
    }

    pub(super) fn annotate(&mut self, event: &mut TrackEvent, fields: Fields<'_>, except: Option<&str>) {
        for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
            self.annotate_one(event, name, value);
        }
    }

    pub(super) fn annotate_cut(&mut self, event: &mut TrackEvent, cut: Cut) {
        if cut.start {
            self.annotate_one(event, "started", &Value::Bool(false));
        }
        if cut.end {
            self.annotate_one(event, "finished", &Value::Bool(false));
        }
    }

    /// Which span a thing of the GPU belongs to, and how that is known.
    pub(super) fn annotate_cause(&mut self, event: &mut TrackEvent, span: Option<Span<'_>>, how: Attribution) {
        if let Some(span) = span {
            self.annotate_text(event, "span", span.name());
        }
        self.annotate_text(event, "attribution", how.as_str());
    }

    pub(super) fn annotate_one(&mut self, event: &mut TrackEvent, name: &str, value: &Value) {
        let mut annotation = DebugAnnotation::default();
        match value {
            Value::Bool(value) => annotation.bool_value = Some(*value),
            Value::I64(value) => annotation.int_value = Some(*value),
            Value::U64(value) => annotation.uint_value = Some(*value),
            Value::F64(value) => annotation.double_value = Some(*value),
            Value::Str(text) => return self.annotate_text(event, name, text),
        }
        annotation.name_iid = Some(self.name(name));
        event.debug_annotations.push(annotation);
    }

    fn annotate_text(&mut self, event: &mut TrackEvent, name: &str, text: &str) {
        let (name_iid, string_value_iid) = (Some(self.name(name)), self.text(text));
        let string_value = string_value_iid.is_none().then(|| text.to_owned());
        let annotation = DebugAnnotation { name_iid, string_value_iid, string_value, ..DebugAnnotation::default() };
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
