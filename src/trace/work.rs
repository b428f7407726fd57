use super::{
    ApiCall, ApiCallId, Attribution, BatchId, OperationCall, Span, SpanId, Step, StepId, Stream, StreamId, Timestamp,
    Trace,
};
use std::{fmt, sync::Arc, time::Duration};

/// Names a piece of [`Work`] of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkId(u32);

impl WorkId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the work in [`Trace::work`](crate::Trace::work).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Debug)]
pub(crate) struct WorkData {
    pub(crate) detail: Detail,
    pub(crate) stream: StreamId,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) correlation: u32,
    pub(crate) graph: Option<GraphNode>,
    pub(crate) call: Option<ApiCallId>,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
    pub(crate) step: Option<StepId>,
}

/// What a piece of work is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// A kernel.
    Kernel(Kernel),
    /// A copy of memory.
    Copy(MemoryCopy),
    /// Memory set to a value.
    Fill(MemoryFill),
}

/// What is known of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// The name for people: demangled.
    pub name: Arc<str>,
    /// The name as the compiler gave it.
    pub raw_name: Arc<str>,
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Registers of a thread.
    pub registers: u16,
    /// Shared memory of a block known when it was compiled, in bytes.
    pub static_shared_memory: u32,
    /// Shared memory of a block asked for at launch, in bytes.
    pub dynamic_shared_memory: u32,
    /// When the host queued it, where the driver says so.
    pub queued: Option<Timestamp>,
}

/// What is known of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCopy {
    /// From where to where.
    pub direction: Direction,
    /// What memory was read.
    pub from: MemoryKind,
    /// What memory was written.
    pub to: MemoryKind,
    /// How many bytes.
    pub bytes: u64,
}

/// What is known of memory being set to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFill {
    /// The value, of one byte, two or four.
    pub value: u32,
    /// What memory was written.
    pub memory: MemoryKind,
    /// How many bytes.
    pub bytes: u64,
}

/// From where to where a copy went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// From the host to a device.
    HostToDevice,
    /// From a device to the host.
    DeviceToHost,
    /// From a device to itself.
    DeviceToDevice,
    /// From the host to itself.
    HostToHost,
    /// From a device to another.
    PeerToPeer,
    /// To, from or between arrays.
    Array,
    /// Another, or not known.
    #[default]
    Unknown,
}

impl Direction {
    /// As PyTorch has it: `HtoD`, `DtoH`, ….
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HostToDevice => "HtoD",
            Self::DeviceToHost => "DtoH",
            Self::DeviceToDevice => "DtoD",
            Self::HostToHost => "HtoH",
            Self::PeerToPeer => "PtoP",
            Self::Array => "Array",
            Self::Unknown => "Unknown",
        }
    }
}

/// What memory something is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Of the host, as any.
    Pageable,
    /// Of the host, page-locked.
    Pinned,
    /// Of a device.
    Device,
    /// An array of a device.
    Array,
    /// Managed: wherever it is used.
    Managed,
    /// A static variable of a device.
    Static,
    /// Not known.
    #[default]
    Unknown,
}

impl MemoryKind {
    /// As PyTorch has it: `Pageable`, `Pinned`, `Device`, ….
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pageable => "Pageable",
            Self::Pinned => "Pinned",
            Self::Device => "Device",
            Self::Array => "Array",
            Self::Managed => "Managed",
            Self::Static => "Device Static",
            Self::Unknown => "Unknown",
        }
    }
}

/// Which node of which CUDA graph a piece of work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct GraphNode {
    /// The driver's number of the graph.
    pub graph: u32,
    /// The driver's number of the node.
    pub node: u64,
}

/// A piece of work of a GPU: a kernel, a copy, memory set to a value.
///
/// It is there if the call that caused it was made while the window was open, and may end after the window has closed.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    trace: &'a Trace,
    index: usize,
}

impl<'a> Work<'a> {
    pub(super) fn new(trace: &'a Trace, index: usize) -> Self {
        Self { trace, index }
    }

    fn data(self) -> &'a WorkData {
        &self.trace.work[self.index]
    }

    /// The id, unique in the trace.
    pub fn id(self) -> WorkId {
        WorkId::new(self.index)
    }

    /// What it is.
    pub fn detail(self) -> &'a Detail {
        &self.data().detail
    }

    /// The kernel, if it is one.
    pub fn kernel(self) -> Option<&'a Kernel> {
        match self.detail() {
            Detail::Kernel(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// A name for people: the kernel's, or as `Memcpy HtoD (Pageable -> Device)`.
    pub fn name(self) -> WorkName<'a> {
        WorkName(self.detail())
    }

    /// Bytes copied or set; 0 for a kernel.
    pub fn bytes(self) -> u64 {
        match self.detail() {
            Detail::Kernel(_) => 0,
            Detail::Copy(copy) => copy.bytes,
            Detail::Fill(fill) => fill.bytes,
        }
    }

    /// Bytes copied or set in a second, if it took any time.
    pub fn bytes_per_second(self) -> Option<f64> {
        let seconds = self.duration().as_secs_f64();
        (self.bytes() > 0 && seconds > 0.0).then(|| self.bytes() as f64 / seconds)
    }

    /// The row it is on.
    pub fn stream(self) -> &'a Stream {
        &self.trace.streams[self.data().stream.index()]
    }

    /// The id of the row it is on.
    pub fn stream_id(self) -> StreamId {
        self.data().stream
    }

    /// When the GPU began it.
    pub fn start(self) -> Timestamp {
        self.data().start
    }

    /// When the GPU ended it.
    pub fn end(self) -> Timestamp {
        self.data().end
    }

    /// From start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The number that the driver gave the call and everything that came of it.
    pub fn correlation(self) -> u32 {
        self.data().correlation
    }

    /// Its place in a CUDA graph, if it was launched as part of one.
    pub fn graph(self) -> Option<GraphNode> {
        self.data().graph
    }

    /// The call of the API that caused it, if it was seen.
    pub fn call(self) -> Option<ApiCall<'a>> {
        self.data().call.map(|id| ApiCall::new(self.trace, id.index()))
    }

    /// How long it took from the beginning of the call to the beginning of the work.
    pub fn delay(self) -> Option<Duration> {
        self.call().map(|call| self.start().since(call.start()))
    }

    /// How it is known which span it belongs to.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    /// The span it belongs to: the innermost one open where and when it was caused.
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }

    /// The span it belongs to, and then the others that asked for its [`operations`](Self::operations), each once.
    pub fn spans(self) -> impl Iterator<Item = Span<'a>> {
        let own = self.data().span;
        let batch = self.batch_id().map_or(&[][..], |batch| self.trace.batches.spans(batch));
        let others = batch.iter().copied().filter(move |&span| own != Some(span));
        own.into_iter().chain(others).map(|id| self.trace.span(id))
    }

    /// The operations that it was launched for, if a framework told of them: all those of its batch, of which other work may have
    /// done a part. See [`Origin::in_batch`](crate::framework::Origin::in_batch).
    pub fn operations(self) -> impl ExactSizeIterator<Item = OperationCall<'a>> {
        let batch = self.batch_id().map_or(&[][..], |batch| self.trace.batches.operations(batch));
        batch.iter().map(|id| OperationCall::new(self.trace, id.index()))
    }

    pub(crate) fn batch_id(self) -> Option<BatchId> {
        self.call().and_then(ApiCall::batch_id)
    }

    /// The step it was caused in.
    pub fn step(self) -> Option<&'a Step> {
        self.data().step.map(|id| &self.trace.steps[id.index()])
    }

    /// The id of the step it was caused in.
    pub fn step_id(self) -> Option<StepId> {
        self.data().step
    }
}

/// The name of a piece of work: a kernel's own, or what a copy does in words.
#[derive(Clone, Copy, Debug)]
pub struct WorkName<'a>(&'a Detail);

impl fmt::Display for WorkName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Detail::Kernel(kernel) => f.pad(&kernel.name),
            Detail::Copy(MemoryCopy { direction, from, to, .. }) => {
                write!(f, "Memcpy {} ({} -> {})", direction.as_str(), from.as_str(), to.as_str())
            }
            Detail::Fill(fill) => write!(f, "Memset ({})", fill.memory.as_str()),
        }
    }
}
