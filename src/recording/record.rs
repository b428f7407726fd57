//! The records that threads write into their lanes.

use super::{DeviceCall, MemoryCall, Origin};
use crate::{
    clock::Ticks,
    span_table::RegistryId,
    trace::{Collective, FieldData, HeapUse, Level, Operation, TraceContext},
};
use std::{backtrace::Backtrace, num::NonZeroU64, sync::Arc};

/// `tracing`'s metadata for the place where a span or event is written.
pub(crate) type Callsite = &'static tracing::Metadata<'static>;

/// Converts a `tracing` level to that of a trace, which does not depend on `tracing`.
pub(crate) fn level_of(level: tracing::Level) -> Level {
    match level {
        tracing::Level::TRACE => Level::Trace,
        tracing::Level::DEBUG => Level::Debug,
        tracing::Level::INFO => Level::Info,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::ERROR => Level::Error,
    }
}

/// A record that a thread writes into its lane. It holds only facts: durations, parents and names are derived later.
#[derive(Debug)]
pub(crate) enum Record {
    /// The records that follow belong to this window.
    Join { window: u32 },
    /// A span was already open when the thread joined the window.
    Open { id: RegistryId, callsite: Callsite },
    /// The `Open` records are complete, for every window that the thread joined since the last `Joined`.
    Joined,
    /// A span was entered.
    Enter { at: Ticks, id: RegistryId, callsite: Callsite },
    /// A span was entered that was made outside the span around it on the thread, as that of a model's layer is.
    EnterKept { at: Ticks, id: RegistryId, callsite: Callsite },
    /// A span was exited.
    Exit { at: Ticks, id: RegistryId },
    /// An event happened.
    Event { at: Ticks, callsite: Callsite },
    /// Fields were recorded on a span that was entered in this window, on this thread or another. They follow.
    Update { at: Ticks, id: RegistryId },
    /// A span was said to follow from another one, its cause. Either may be open on any thread, or not yet entered.
    Follows { at: Ticks, id: RegistryId, cause: RegistryId },
    /// A field of the `Open`, `Enter`, `Event` or `Update` before it.
    Field(FieldData),
    /// All fields of the `Open` or `Enter` before it, shared by all instances of the span.
    Fields(Arc<[FieldData]>),
    /// The parent that `tracing` has for the span of the `Open` or `Enter` before it. Written only where it cannot be
    /// derived from the spans around it on the thread.
    Parent { id: NonZeroU64 },
    /// The OpenTelemetry context of the span of the `Open`, `Enter` or `ContextOf` before it.
    Context { trace: [u64; 2], span: u64 },
    /// The OpenTelemetry context of a span that is not sampled, written like `Context`.
    Unsampled { trace: [u64; 2], span: u64 },
    /// Names an open span. A context that follows belongs to this span; if none follows, the span has none.
    ContextOf { id: RegistryId },
    /// The call stack of the `Enter` before it.
    Backtrace(Box<Backtrace>),
    /// A call to a device's API returned.
    Call(DeviceCall),
    /// A call changed a device's memory, or a framework reported a change in the memory of its tensors.
    Memory(MemoryCall),
    /// The memory of a framework's pool before its first change in this window.
    Pool { device: u32, used: u64, reserved: u64 },
    /// The heap that the thread used since the last record of this kind, or since it joined the window, in the
    /// innermost span that is open.
    Heap(HeapUse),
    /// The thread's CPU time in nanoseconds when the span of the `Enter` before it was entered.
    CpuStart { nanos: u64 },
    /// The thread's CPU time in nanoseconds when this span was exited. The `Exit` comes next.
    CpuEnd { nanos: u64, id: RegistryId },
    /// A framework reported an operation.
    Operation { at: Ticks, operation: Arc<Operation> },
    /// The call before it launched the kernel of this collective.
    Collective { at: Ticks, collective: Arc<Collective> },
    /// The calls and operations that follow are made on behalf of this origin; `None` means on behalf of the thread
    /// itself.
    Adopt(Option<Origin>),
}

const _: () = assert!(size_of::<Record>() == Record::SIZE);

impl Record {
    /// The size of a record in bytes. Two records fit into a cache line.
    pub(crate) const SIZE: usize = 32;

    /// Creates the record of an OpenTelemetry context.
    pub(crate) fn of_context(TraceContext { trace_id, span_id: span, sampled }: TraceContext) -> Self {
        let trace = [(trace_id >> 64) as u64, trace_id as u64];
        if sampled { Self::Context { trace, span } } else { Self::Unsampled { trace, span } }
    }
}
