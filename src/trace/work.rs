//! GPU work: kernels, copies and fills, and the details of each kind.

use super::{
    ApiCall, ApiCallId, Attribution, BatchId, Collective, OperationCall, Span, SpanId, Step, StepId, Stream, StreamId,
    Timestamp, Trace, id::define_id,
};
use std::{fmt, sync::Arc, time::Duration};

define_id! {
    /// Names a piece of [`Work`] of one trace.
    pub struct WorkId;

    /// The index of the work in [`Trace::work`](crate::Trace::work).
    pub fn index;
}

/// The stored data of a [`Work`].
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

/// A node of a CUDA graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct GraphNode {
    /// The driver's number for the graph.
    pub graph: u32,
    /// The driver's number for the node.
    pub node: u64,
}

/// A piece of GPU work: a kernel, a memory copy, or a fill.
///
/// Work is in the trace if the call that caused it was made while the window was open. It may end after the window
/// closed.
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

    /// The kind of work, and the facts specific to this kind.
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

    /// A display name: the kernel's, or one such as `Memcpy HtoD (Pageable -> Device)`.
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

    /// Bytes copied or set per second; `None` for a kernel, or if the work took no time.
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

    /// The time from start to end.
    pub fn duration(self) -> Duration {
        self.end().since(self.start())
    }

    /// The correlation id: the number that the driver gave the call and all work that the call caused.
    pub fn correlation(self) -> u32 {
        self.data().correlation
    }

    /// The graph node it ran as, if it was launched as part of a CUDA graph.
    pub fn graph(self) -> Option<GraphNode> {
        self.data().graph
    }

    /// The API call that caused it, if recorded.
    pub fn call(self) -> Option<ApiCall<'a>> {
        self.data().call.map(|id| ApiCall::new(self.trace, id.index()))
    }

    /// The time from the start of the API call to the start of the work.
    pub fn delay(self) -> Option<Duration> {
        self.call().map(|call| self.start().since(call.start()))
    }

    /// How its span was found.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    /// The span it belongs to: the innermost one open on the calling thread during the call, or, if the work was handed
    /// over, at its [`Origin`](crate::framework::Origin).
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }

    /// The span it belongs to, then the others that requested its [`operations`](Self::operations), without duplicates.
    pub fn spans(self) -> impl Iterator<Item = Span<'a>> {
        let own = self.data().span;
        let batch = self.batch_id().map_or(&[][..], |batch| self.trace.batches.spans(batch));
        let others = batch.iter().copied().filter(move |&span| own != Some(span));
        own.into_iter().chain(others).map(|id| self.trace.span(id))
    }

    /// The operations it was launched for, if a framework reported them.
    ///
    /// These are all operations of its batch; other work may have done some of them. See
    /// [`Origin::in_batch`](crate::framework::Origin::in_batch).
    pub fn operations(self) -> impl ExactSizeIterator<Item = OperationCall<'a>> {
        let batch = self.batch_id().map_or(&[][..], |batch| self.trace.batches.operations(batch));
        batch.iter().map(|id| OperationCall::new(self.trace, id.index()))
    }

    pub(crate) fn batch_id(self) -> Option<BatchId> {
        self.call().and_then(ApiCall::batch_id)
    }

    /// The exchange of data between ranks that it is, if the framework has described it. PyTorch does so in its traces,
    /// and NCCL itself with `kernspan-nccl`.
    pub fn collective(self) -> Option<&'a Collective> {
        self.trace.collectives.get(&self.id()).map(|collective| &**collective)
    }

    /// The step in which it was requested.
    pub fn step(self) -> Option<&'a Step> {
        self.data().step.map(|id| &self.trace.steps[id.index()])
    }

    /// The id of the step it was caused in.
    pub fn step_id(self) -> Option<StepId> {
        self.data().step
    }
}

impl Trace {
    /// The work with this id.
    pub(crate) fn work_of(&self, id: WorkId) -> Work<'_> {
        Work::new(self, id.index())
    }
}

/// The name of a piece of work: a kernel's own name, or a description of a copy or fill.
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

/// The kind of a piece of [`Work`], and the facts specific to this kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Detail {
    /// A kernel.
    Kernel(Kernel),
    /// A memory copy.
    Copy(MemoryCopy),
    /// A fill: memory set to a value.
    Fill(MemoryFill),
}

/// The facts about a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kernel {
    /// The demangled name.
    pub name: Arc<str>,
    /// The mangled name, as the compiler emitted it.
    pub raw_name: Arc<str>,
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads per block in each dimension.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: u16,
    /// Shared memory per block, fixed at compile time, in bytes.
    pub static_shared_memory: u32,
    /// Shared memory per block, requested at launch, in bytes.
    pub dynamic_shared_memory: u32,
    /// When the host queued it, if the driver says so.
    pub queued: Option<Timestamp>,
}

/// The facts about a memory copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryCopy {
    /// The direction of the copy.
    pub direction: Direction,
    /// The kind of memory that was read.
    pub from: MemoryKind,
    /// The kind of memory that was written.
    pub to: MemoryKind,
    /// The number of bytes copied.
    pub bytes: u64,
}

/// The facts about a fill: memory set to a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryFill {
    /// The value, one, two or four bytes wide.
    pub value: u32,
    /// The kind of memory that was written.
    pub memory: MemoryKind,
    /// The number of bytes written.
    pub bytes: u64,
}

/// The direction of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// From the host to a device.
    HostToDevice,
    /// From a device to the host.
    DeviceToHost,
    /// Within a device.
    DeviceToDevice,
    /// Within the host's memory.
    HostToHost,
    /// From one device to another.
    PeerToPeer,
    /// To, from or between CUDA arrays.
    Array,
    /// Any other or unknown direction.
    #[default]
    Unknown,
}

impl Direction {
    /// PyTorch's name for it: `HtoD`, `DtoH`, ….
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

/// The kind of memory that a copy or fill reads or writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// Ordinary host memory.
    Pageable,
    /// Page-locked host memory.
    Pinned,
    /// Device memory.
    Device,
    /// A CUDA array on a device.
    Array,
    /// Managed memory, which migrates to where it is used.
    Managed,
    /// A static variable on a device.
    Static,
    /// The kind is unknown.
    #[default]
    Unknown,
}

impl MemoryKind {
    /// PyTorch's name for it: `Pageable`, `Pinned`, `Device`, ….
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
