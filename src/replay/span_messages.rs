//! The parts of the message about threads: callsites, tracks, steps and spans.
//!
//! A part is made of an item by `of`, and becomes an item of a trace by `add_to`, which returns `None` if an index is
//! out of range.

use crate::trace::{
    CallsiteData, CallsiteId, Cut, FieldData, FieldRange, Level, LoadsData, SpanData, SpanId, Step, StepId, ThreadId,
    Timestamp, Trace, Track, TrackId, Value,
};
use prost::Message;
use std::borrow::Cow;

#[derive(Message)]
pub(super) struct CallsiteMessage {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    target: String,
    #[prost(string, optional, tag = "3")]
    file: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    line: Option<u32>,
    #[prost(string, repeated, tag = "5")]
    fields: Vec<String>,
}

impl CallsiteMessage {
    pub(super) fn of(callsite: &CallsiteData) -> Self {
        Self {
            name: callsite.name.to_string(),
            target: callsite.target.to_string(),
            file: callsite.file.as_deref().map(str::to_owned),
            line: callsite.line,
            fields: callsite.fields.iter().map(ToString::to_string).collect(),
        }
    }

    pub(super) fn into_callsite(self) -> CallsiteData {
        CallsiteData {
            name: Cow::Owned(self.name),
            target: Cow::Owned(self.target),
            level: Level::Info,
            file: self.file.map(Cow::Owned),
            line: self.line,
            fields: self.fields.into_iter().map(Cow::Owned).collect(),
            loads: LoadsData::default(),
        }
    }
}

/// A field of a span or operation.
#[derive(Message)]
pub(super) struct FieldMessage {
    /// The index of its name in the field names of the callsite or operation.
    #[prost(uint32, tag = "1")]
    index: u32,
    #[prost(oneof = "ValueMessage", tags = "2, 3, 4, 5, 6")]
    value: Option<ValueMessage>,
}

#[derive(prost::Oneof)]
pub(super) enum ValueMessage {
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sint64, tag = "3")]
    I64(i64),
    #[prost(uint64, tag = "4")]
    U64(u64),
    #[prost(double, tag = "5")]
    F64(f64),
    #[prost(string, tag = "6")]
    Str(String),
}

impl FieldMessage {
    pub(super) fn of(field: &FieldData) -> Self {
        let value = match &field.value {
            Value::Bool(value) => ValueMessage::Bool(*value),
            Value::I64(value) => ValueMessage::I64(*value),
            Value::U64(value) => ValueMessage::U64(*value),
            Value::F64(value) => ValueMessage::F64(*value),
            Value::Str(value) => ValueMessage::Str(value.to_string()),
        };
        Self { index: field.index, value: Some(value) }
    }

    /// Returns the field; `None` if the message has no value.
    pub(super) fn into_field(self) -> Option<FieldData> {
        let value = match self.value? {
            ValueMessage::Bool(value) => Value::Bool(value),
            ValueMessage::I64(value) => Value::I64(value),
            ValueMessage::U64(value) => Value::U64(value),
            ValueMessage::F64(value) => Value::F64(value),
            ValueMessage::Str(value) => Value::Str(value.into()),
        };
        Some(FieldData { index: self.index, value })
    }
}

#[derive(Message)]
pub(super) struct TrackMessage {
    #[prost(uint64, tag = "1")]
    thread: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(uint32, tag = "3")]
    overlap: u32,
}

impl TrackMessage {
    pub(super) fn of(track: &Track) -> Self {
        Self { thread: track.thread.as_u64(), name: track.name.clone(), overlap: track.overlap }
    }

    pub(super) fn into_track(self) -> Track {
        Track { thread: ThreadId::new(self.thread), name: self.name, overlap: self.overlap }
    }
}

/// The start of an item in nanoseconds since the window opened, its duration, and its track.
#[derive(Clone, Copy, Message)]
pub(super) struct ExtentMessage {
    #[prost(uint64, tag = "1")]
    start: u64,
    #[prost(uint64, tag = "2")]
    nanos: u64,
    #[prost(uint32, tag = "3")]
    track: u32,
}

impl ExtentMessage {
    pub(super) fn of(trace: &Trace, start: Timestamp, end: Timestamp, track: TrackId) -> Option<Self> {
        let since = |at: Timestamp, from: Timestamp| at.as_unix_nanos().saturating_sub(from.as_unix_nanos());
        Some(Self { start: since(start, trace.start), nanos: since(end, start), track: track.index() as u32 })
    }

    /// Returns the start, the end and the track.
    pub(super) fn resolve(message: Option<Self>, trace: &Trace) -> Option<(Timestamp, Timestamp, TrackId)> {
        let Self { start, nanos, track } = message.unwrap_or_default();
        let start = trace.start.as_unix_nanos().saturating_add(start);
        let end = start.saturating_add(nanos);
        let track = TrackId::new(within(track, trace.tracks.len())?);
        Some((Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end), track))
    }
}

#[derive(Clone, Copy, Message)]
pub(super) struct CutMessage {
    #[prost(bool, tag = "1")]
    start: bool,
    #[prost(bool, tag = "2")]
    end: bool,
}

impl CutMessage {
    fn of(cut: Cut) -> Option<Self> {
        cut.any().then_some(Self { start: cut.start, end: cut.end })
    }

    fn resolve(message: Option<Self>) -> Cut {
        message.map_or_else(Cut::default, |cut| Cut { start: cut.start, end: cut.end })
    }
}

#[derive(Message)]
pub(super) struct StepMessage {
    #[prost(uint64, tag = "1")]
    number: u64,
    #[prost(message, optional, tag = "2")]
    extent: Option<ExtentMessage>,
    #[prost(message, optional, tag = "3")]
    cut: Option<CutMessage>,
}

impl StepMessage {
    pub(super) fn of(trace: &Trace, step: &Step) -> Self {
        let extent = ExtentMessage::of(trace, step.start, step.end, step.track);
        Self { number: step.number, extent, cut: CutMessage::of(step.cut) }
    }

    pub(super) fn add_to(self, trace: &mut Trace) -> Option<()> {
        let (start, end, track) = ExtentMessage::resolve(self.extent, trace)?;
        trace.steps.push(Step { number: self.number, track, start, end, cut: CutMessage::resolve(self.cut) });
        Some(())
    }
}

#[derive(Message)]
pub(super) struct SpanMessage {
    #[prost(uint32, tag = "1")]
    callsite: u32,
    #[prost(message, optional, tag = "2")]
    extent: Option<ExtentMessage>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) parent: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    step: Option<u32>,
    #[prost(uint64, tag = "5")]
    self_nanos: u64,
    #[prost(message, optional, tag = "6")]
    cut: Option<CutMessage>,
    #[prost(message, repeated, tag = "7")]
    fields: Vec<FieldMessage>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) previous: Option<u32>,
    /// One more than the caller, if that is not the parent; 0 if there is none.
    #[prost(uint32, optional, tag = "9")]
    pub(super) caller: Option<u32>,
    /// The CPU time in nanoseconds, if it was read.
    #[prost(uint64, optional, tag = "10")]
    pub(super) cpu_nanos: Option<u64>,
    /// The first enters of the calls that this one follows from, if it is the first enter of its own.
    #[prost(uint32, repeated, tag = "11")]
    pub(super) follows: Vec<u32>,
}

impl SpanMessage {
    pub(super) fn of(trace: &Trace, id: SpanId) -> Self {
        let span = &trace.spans[id.index()];
        Self {
            callsite: span.callsite.index() as u32,
            extent: ExtentMessage::of(trace, span.start, span.end, span.track),
            parent: span.parent.map(|parent| parent.index() as u32),
            step: span.step.map(|step| step.index() as u32),
            self_nanos: span.self_nanos,
            cut: CutMessage::of(span.cut),
            fields: trace.fields[span.fields.as_range()].iter().map(FieldMessage::of).collect(),
            previous: span.previous.map(|previous| previous.index() as u32),
            caller: trace.callers.get(&id).map(|caller| caller.map_or(0, |caller| caller.index() as u32 + 1)),
            cpu_nanos: trace.cpu_times.get(&id).map(|cpu| cpu.total),
            follows: trace.follows.get(&id).into_iter().flatten().map(|cause| cause.index() as u32).collect(),
        }
    }

    /// The indices of the previous span, of the caller and of causes, which may come later, are not checked.
    pub(super) fn add_to(self, trace: &mut Trace) -> Option<()> {
        let (start, end, track) = ExtentMessage::resolve(self.extent, trace)?;
        if let Some(caller) = self.caller {
            let id = SpanId::new(trace.spans.len());
            trace.callers.insert(id, caller.checked_sub(1).map(|caller| SpanId::new(caller as usize)));
        }
        if !self.follows.is_empty() {
            let causes = self.follows.iter().map(|cause| SpanId::new(*cause as usize)).collect();
            trace.follows.insert(SpanId::new(trace.spans.len()), causes);
        }
        let first_field = trace.fields.len();
        trace.fields.extend(self.fields.into_iter().filter_map(FieldMessage::into_field));
        trace.spans.push(SpanData {
            callsite: CallsiteId::new(within(self.callsite, trace.callsites.len())?),
            track,
            // A parent comes before its children.
            parent: within_if_any(self.parent, trace.spans.len())?.map(SpanId::new),
            previous: self.previous.map(|previous| SpanId::new(previous as usize)),
            step: within_if_any(self.step, trace.steps.len())?.map(StepId::new),
            start,
            end,
            self_nanos: self.self_nanos,
            fields: FieldRange {
                start: u32::try_from(first_field).ok()?,
                len: u32::try_from(trace.fields.len() - first_field).ok()?,
            },
            cut: CutMessage::resolve(self.cut),
        });
        Some(())
    }
}

/// Returns the index if it is one of a list of this length.
pub(super) fn within(index: u32, length: usize) -> Option<usize> {
    ((index as usize) < length).then_some(index as usize)
}

/// Returns the index, if there is one; `None` if it is out of range.
pub(super) fn within_if_any(index: Option<u32>, length: usize) -> Option<Option<usize>> {
    match index {
        Some(index) => within(index, length).map(Some),
        None => Some(None),
    }
}
