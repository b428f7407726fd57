use super::{ApiCall, ApiCallId, Attribution, DeviceId, Span, SpanId, ThreadId, Timestamp, Trace};
use std::time::Duration;

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

/// Who waits for what.
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
    /// As PyTorch has it: `Event Sync`, `Stream Wait Event`, `Stream Sync`, `Context Sync`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Event => "Event Sync",
            Self::StreamForEvent => "Stream Wait Event",
            Self::Stream => "Stream Sync",
            Self::Context => "Context Sync",
        }
    }
}

/// A synchronisation: the host or a stream waits for work of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    trace: &'a Trace,
    data: &'a WaitData,
}

impl<'a> Wait<'a> {
    pub(super) fn new(trace: &'a Trace, data: &'a WaitData) -> Self {
        Self { trace, data }
    }

    /// Who waits for what.
    pub fn kind(self) -> WaitKind {
        self.data.kind
    }

    /// When the waiting began.
    pub fn start(self) -> Timestamp {
        self.data.start
    }

    /// When it was over.
    pub fn end(self) -> Timestamp {
        self.data.end
    }

    /// From start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The device, if it is known.
    pub fn device(self) -> Option<DeviceId> {
        self.data.device
    }

    /// The driver's number of the context.
    pub fn context(self) -> u32 {
        self.data.context
    }

    /// The driver's number of the stream that is waited for, or that waits.
    pub fn stream(self) -> Option<u32> {
        self.data.stream
    }

    /// The driver's number of the event that is waited for.
    pub fn event(self) -> Option<u32> {
        self.data.event
    }

    /// The number that the driver gave the call.
    pub fn correlation(self) -> u32 {
        self.data.correlation
    }

    /// The call, if it was seen.
    pub fn call(self) -> Option<ApiCall<'a>> {
        self.data.call.map(|id| ApiCall::new(self.trace, id.index()))
    }

    /// How it is known which span it belongs to.
    pub fn attribution(self) -> Attribution {
        self.data.attribution
    }

    /// The span that waited.
    pub fn span(self) -> Option<Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }
}

/// Time that the GPU's profiling library itself took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overhead {
    pub(crate) name: &'static str,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Overhead {
    /// What it was: `Buffer Flush`, `Instrumentation`, ….
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The thread that had to wait for it, if it was one.
    pub fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    /// When it began.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When it ended.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// From start to end.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}
