use super::{Callsite, CallsiteId, FieldRange, Fields, SpanId, Timestamp, Trace, Track, TrackId, Value};

#[derive(Clone, Debug)]
pub(crate) struct EventData {
    pub(crate) callsite: CallsiteId,
    pub(crate) track: TrackId,
    pub(crate) span: Option<SpanId>,
    pub(crate) at: Timestamp,
    pub(crate) fields: FieldRange,
}

/// Something that happened at one moment: `tracing::info!` and its kin.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    trace: &'a Trace,
    data: &'a EventData,
}

impl<'a> Event<'a> {
    pub(super) fn new(trace: &'a Trace, data: &'a EventData) -> Self {
        Self { trace, data }
    }

    /// The message, or the name of the callsite where there is none.
    pub fn message(self) -> &'a str {
        self.fields().get("message").and_then(Value::as_str).unwrap_or_else(|| self.callsite().name())
    }

    /// Where it is written.
    pub fn callsite(self) -> &'a Callsite {
        &self.trace.callsites[self.data.callsite.index()]
    }

    /// The thread it happened on.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data.track)
    }

    pub(crate) fn track_id(self) -> TrackId {
        self.data.track
    }

    /// The innermost span open on that thread then.
    pub fn span(self) -> Option<super::Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }

    /// When it happened.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// Its fields, the message among them.
    pub fn fields(self) -> Fields<'a> {
        self.trace.fields(self.data.callsite, self.data.fields)
    }
}
