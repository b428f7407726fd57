//! Waits of the host or of a stream for GPU work.

use super::{ApiCall, ApiCallId, Attribution, DeviceId, Span, SpanId, Timestamp, Trace};
use std::time::Duration;

/// The stored data of a [`Wait`].
#[derive(Clone, Debug)]
pub(crate) struct WaitData {
    pub(crate) kind: WaitKind,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) correlation: u32,
    pub(crate) device: Option<DeviceId>,
    pub(crate) context: u32,
    pub(crate) stream: Option<u32>,
    pub(crate) event: Option<u32>,
    pub(crate) call: Option<ApiCallId>,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
}

/// The kind of a [`Wait`]: who waits for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum WaitKind {
    /// The host waits for an event.
    Event,
    /// A stream waits for an event.
    StreamForEvent,
    /// The host waits for a stream.
    Stream,
    /// The host waits for everything in a context.
    Context,
}

impl WaitKind {
    /// PyTorch's name for it: `Event Sync`, `Stream Wait Event`, `Stream Sync`, `Context Sync`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "Event Sync",
            Self::StreamForEvent => "Stream Wait Event",
            Self::Stream => "Stream Sync",
            Self::Context => "Context Sync",
        }
    }
}

/// A synchronisation: the host or a stream waits for GPU work.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    trace: &'a Trace,
    data: &'a WaitData,
}

impl<'a> Wait<'a> {
    pub(super) fn new(trace: &'a Trace, data: &'a WaitData) -> Self {
        Self { trace, data }
    }

    /// The kind of wait: who waits for what.
    pub fn kind(self) -> WaitKind {
        self.data.kind
    }

    /// When the waiting began.
    pub fn start(self) -> Timestamp {
        self.data.start
    }

    /// When the waiting ended.
    pub fn end(self) -> Timestamp {
        self.data.end
    }

    /// The time from start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The device, if known.
    pub fn device(self) -> Option<DeviceId> {
        self.data.device
    }

    /// The driver's number for the context.
    pub fn context(self) -> u32 {
        self.data.context
    }

    /// The driver's number for the stream being waited for; for [`StreamForEvent`](WaitKind::StreamForEvent), of the
    /// stream that waits.
    pub fn stream(self) -> Option<u32> {
        self.data.stream
    }

    /// The driver's number for the event being waited for.
    pub fn event(self) -> Option<u32> {
        self.data.event
    }

    /// The correlation id: the number that the driver gave the call.
    pub fn correlation(self) -> u32 {
        self.data.correlation
    }

    /// The API call that waited, if recorded.
    pub fn call(self) -> Option<ApiCall<'a>> {
        self.data.call.map(|id| ApiCall::new(self.trace, id.index()))
    }

    /// How its span was found.
    pub fn attribution(self) -> Attribution {
        self.data.attribution
    }

    /// The span that waited.
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }
}
