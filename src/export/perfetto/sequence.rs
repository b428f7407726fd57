//! Sequences of packets, each with the events of one track.

use super::{
    event::{AnnotationValue, Event},
    interner::Interner,
    proto::{self, Clock, ClockSnapshot, PacketWriter, TracePacket, TracePacketDefaults, TrackEventDefaults, Type},
};
use crate::{
    export::wire,
    trace::{Attribution, Callsite, CallsiteId, Cut, Fields, Span, Timestamp, Trace, Value},
};
use prost::Message;
use rustc_hash::FxHashMap;
use std::io;

/// A sequence of packets with the events of one track. Times are relative to the previous packet, and names are numbers
/// once written.
#[derive(Debug)]
pub(super) struct Sequence {
    id: u32,
    /// The time of the last packet.
    now: Timestamp,
    /// The ends of the open slices, outermost first.
    open: Vec<Timestamp>,
    names: Interner,
    /// The annotations about the cause of an event, by the callsite of the span that is the cause.
    causes: FxHashMap<(Option<CallsiteId>, Attribution), Event>,
    /// The last event written. The next one reuses its memory.
    used: Event,
}

impl Sequence {
    /// Begins the sequence with this number, for the track with this uuid.
    pub(super) fn begin(packets: &mut PacketWriter<'_>, trace: &Trace, id: u32, track: u64) -> io::Result<Self> {
        let start = trace.start();
        let clock = |clock_id, is_incremental| Clock {
            clock_id: Some(clock_id),
            timestamp: Some(start.as_unix_nanos()),
            is_incremental,
        };
        packets.packet(TracePacket {
            trusted_packet_sequence_id: Some(id),
            sequence_flags: Some(proto::SEQ_INCREMENTAL_STATE_CLEARED),
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![
                    // Perfetto shows the times of this clock, which are readable if it is the wall clock as well.
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
        Ok(Self {
            id,
            now: start,
            open: Vec::new(),
            names: Interner::new(trace.callsites().len()),
            causes: FxHashMap::default(),
            used: Event::default(),
        })
    }

    /// The field of a packet with a `TrackEvent`.
    const TRACK_EVENT: u32 = 11;
    /// The field of a packet with a `GpuRenderStageEvent`.
    const RENDER_STAGE_EVENT: u32 = 53;

    /// Writes a packet with an event, in the field of its type. The end of a slice has no interned names, so it needs
    /// no `flags`, which saves two bytes.
    fn write(
        &mut self,
        packets: &mut PacketWriter<'_>,
        at: Timestamp,
        (field, event): (u32, &[u8]),
        flags: Option<u32>,
    ) -> io::Result<()> {
        let delta = at.as_unix_nanos().saturating_sub(self.now.as_unix_nanos());
        self.now = self.now.max(at);
        let (id, new) = (self.id, self.names.take_new());
        packets.encoded(|out| {
            wire::number(out, 8, delta);
            wire::number(out, 10, id.into());
            wire::bytes(out, field, event);
            if let Some(new) = new {
                wire::message(out, 12, |out| new.encode_raw(out));
            }
            if let Some(flags) = flags {
                wire::number(out, 13, flags.into());
            }
        })
    }

    fn event(&mut self, packets: &mut PacketWriter<'_>, at: Timestamp, event: Event) -> io::Result<()> {
        let field = (Self::TRACK_EVENT, event.as_bytes());
        self.write(packets, at, field, Some(proto::SEQ_NEEDS_INCREMENTAL_STATE))?;
        self.used = event;
        Ok(())
    }

    /// Writes the beginning of a slice; its end is written before whatever comes after it. Slices nest and come in the
    /// order of their starts.
    pub(super) fn slice(
        &mut self,
        packets: &mut PacketWriter<'_>,
        start: Timestamp,
        end: Timestamp,
        event: Event,
    ) -> io::Result<()> {
        self.end_until(packets, start)?;
        self.open.push(end);
        self.event(packets, start, event)
    }

    /// Writes an encoded `GpuRenderStageEvent`, which is on no track of ours.
    pub(super) fn render_stage(
        &mut self,
        packets: &mut PacketWriter<'_>,
        start: Timestamp,
        event: &[u8],
    ) -> io::Result<()> {
        let field = (Self::RENDER_STAGE_EVENT, event);
        self.write(packets, start, field, Some(proto::SEQ_NEEDS_INCREMENTAL_STATE))
    }

    /// Returns the numbers of this sequence's names.
    pub(super) fn names(&mut self) -> &mut Interner {
        &mut self.names
    }

    /// Writes an event of one moment.
    pub(super) fn instant(&mut self, packets: &mut PacketWriter<'_>, at: Timestamp, event: Event) -> io::Result<()> {
        self.end_until(packets, at)?;
        self.event(packets, at, event)
    }

    /// Writes a sample of a counter.
    pub(super) fn count(&mut self, packets: &mut PacketWriter<'_>, at: Timestamp, value: f64) -> io::Result<()> {
        let event = self.new_event(Type::Counter).counter_value(value);
        self.event(packets, at, event)
    }

    /// Ends the slices that are still open.
    pub(super) fn finish(mut self, packets: &mut PacketWriter<'_>) -> io::Result<()> {
        self.end_until(packets, Timestamp::from_unix_nanos(u64::MAX))
    }

    fn end_until(&mut self, packets: &mut PacketWriter<'_>, at: Timestamp) -> io::Result<()> {
        while let Some(end) = self.open.pop_if(|end| *end <= at) {
            self.write(packets, end, (Self::TRACK_EVENT, &Event::SLICE_END), None)?;
        }
        Ok(())
    }

    /// Makes an event of this type.
    pub(super) fn new_event(&mut self, kind: Type) -> Event {
        Event::new(kind, std::mem::take(&mut self.used))
    }

    /// Makes a copy of an event.
    pub(super) fn copy(&mut self, event: &Event) -> Event {
        event.copy_into(std::mem::take(&mut self.used))
    }

    /// Makes the beginning of a slice without a name.
    pub(super) fn nameless(&mut self, category: &'static str) -> Event {
        let category = self.names.category(category);
        self.new_event(Type::SliceBegin).category(category)
    }

    /// Makes the beginning of a slice named after its callsite. `index` is that of the callsite in the trace.
    pub(super) fn at_callsite(&mut self, category: &'static str, index: usize, callsite: &Callsite) -> Event {
        let iid = self.names.callsite(index, callsite);
        self.nameless(category).interned_name(iid).source_location(iid)
    }

    /// Makes the beginning of a slice with an interned name.
    pub(super) fn named(&mut self, category: &'static str, name: &str) -> Event {
        let iid = self.names.event_name(name);
        self.nameless(category).interned_name(iid)
    }

    /// Makes an operation of a framework.
    pub(super) fn operation(&mut self, name: &str) -> Event {
        let category = self.names.category("operation");
        let iid = self.names.event_name(name);
        self.new_event(Type::Instant).interned_name(iid).category(category)
    }

    /// Annotates an event with each field, except the one named `except`.
    pub(super) fn annotate_fields(&mut self, event: &mut Event, fields: Fields<'_>, except: Option<&str>) {
        for (name, value) in fields.iter().filter(|(name, _)| Some(*name) != except) {
            self.annotate(event, name, value);
        }
    }

    /// Annotates an event with those of its ends that lie outside the window.
    pub(super) fn annotate_cut(&mut self, event: &mut Event, cut: Cut) {
        if cut.start {
            self.annotate(event, "started", &Value::Bool(false));
        }
        if cut.end {
            self.annotate(event, "finished", &Value::Bool(false));
        }
    }

    /// Annotates an event of the GPU with the span that caused it, and how that is known.
    pub(super) fn annotate_cause(&mut self, event: &mut Event, span: Option<Span<'_>>, how: Attribution) {
        let cause = (span.map(Span::callsite_id), how);
        if let Some(known) = self.causes.get(&cause) {
            return event.extend(known);
        }
        let mut annotations = Event::default();
        if let Some(span) = span {
            self.annotate_text(&mut annotations, "span", span.name());
        }
        self.annotate_text(&mut annotations, "attribution", how.as_str());
        event.extend(&annotations);
        self.causes.insert(cause, annotations);
    }

    pub(super) fn annotate(&mut self, event: &mut Event, name: &str, value: &Value) {
        let value = match value {
            Value::Bool(value) => AnnotationValue::Bool(*value),
            Value::I64(value) => AnnotationValue::I64(*value),
            Value::U64(value) => AnnotationValue::U64(*value),
            Value::F64(value) => AnnotationValue::F64(*value),
            Value::Str(text) => return self.annotate_text(event, name, text),
        };
        event.annotate(self.names.annotation_name(name), value);
    }

    pub(super) fn annotate_text(&mut self, event: &mut Event, name: &str, text: &str) {
        let name_iid = self.names.annotation_name(name);
        let value = self.names.text(text).map_or(AnnotationValue::Text(text), AnnotationValue::Interned);
        event.annotate(name_iid, value);
    }
}
