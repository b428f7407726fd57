use super::{DeviceCall, MemoryCall, Origin};
use crate::{
    clock::Ticks,
    trace::{FieldData, Operation, TraceContext},
};
use std::{backtrace::Backtrace, sync::Arc};

/// A span's id in the registry, which uses ids again once a span has closed.
pub(crate) type RegistryId = u64;

/// What `tracing` knows of the place where a span or event is written.
pub(crate) type Callsite = &'static tracing::Metadata<'static>;

/// What a thread writes into its lane. Facts only: durations, parents and names are worked out later.
#[derive(Debug)]
pub(crate) enum Record {
    /// The thread writes for this window from here on.
    Join { window: u32 },
    /// A span that was open already when the thread joined.
    Open { id: RegistryId, callsite: Callsite },
    /// The thread has told what was open, in every window it joined since it last said so, and goes on.
    Told,
    /// A span is entered.
    Enter { at: Ticks, id: RegistryId, callsite: Callsite },
    /// A span is exited.
    Exit { at: Ticks, id: RegistryId },
    /// An event.
    Event { at: Ticks, callsite: Callsite },
    /// Fields are recorded on a span that was entered in this window, here or on another thread.
    Update { at: Ticks, id: RegistryId },
    /// A field of the `Open`, `Enter`, `Event` or `Update` before it.
    Field(FieldData),
    /// All fields of the `Open` or `Enter` before it, which the span has had each time.
    Fields(Arc<[FieldData]>),
    /// Which span of OpenTelemetry's the span of the `Open`, `Enter` or `Of` before it is.
    Context { trace: [u64; 2], span: u64 },
    /// The same, of one that is not sampled.
    Unsampled { trace: [u64; 2], span: u64 },
    /// A span that is open: if a context follows, it is this one's, and if not, it has none.
    #[cfg_attr(not(feature = "tracing-opentelemetry"), allow(dead_code, reason = "there is nothing to tell"))]
    Of { id: RegistryId },
    /// The call stack of the `Enter` before it.
    Backtrace(Box<Backtrace>),
    /// A call of a device's API has returned.
    Call(DeviceCall),
    /// A call has changed a device's memory.
    Memory(MemoryCall),
    /// The thread was asked for an operation.
    Operation { at: Ticks, operation: Arc<Operation> },
    /// From here on, the thread's calls are made and operations told of on behalf of another, or again on its own.
    Adopt(Option<Origin>),
}

const _: () = assert!(size_of::<Record>() == Record::SIZE);

impl Record {
    /// Two to a cache line. So what is no field has three words.
    pub(crate) const SIZE: usize = 32;

    pub(crate) fn of_context(TraceContext { trace_id, span_id: span, sampled }: TraceContext) -> Self {
        let trace = [(trace_id >> 64) as u64, trace_id as u64];
        if sampled { Self::Context { trace, span } } else { Self::Unsampled { trace, span } }
    }

    /// About what the record owns beside itself.
    pub(crate) fn owned_bytes(&self) -> usize {
        const BACKTRACE: usize = 4096;
        match self {
            Self::Field(field) => field.value.as_str().map_or(0, str::len),
            Self::Backtrace(_) => BACKTRACE,
            // One that is told of again and again is somebody else's.
            Self::Operation { operation, .. } if Arc::strong_count(operation) == 1 => operation.bytes(),
            _ => 0,
        }
    }
}
