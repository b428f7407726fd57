//! The recorded data: a [`Trace`] contains everything recorded in one window, on one clock.
//!
//! A trace is immutable and plain: it depends on neither `tracing` nor any GPU library. Exporters and reports read
//! traces; your own program gets them from an [`Exporter`](crate::Exporter) or from [`Collected`](crate::Collected).
//!
//! Methods of [`Trace`] list what it holds, and methods of each item lead to others:
//!
//! - On the host, each thread has a [`Track`]. A [`Span`] is one enter and exit on a track; it has a
//!   [`parent`](Span::parent), a [`step`](Span::step), [`Fields`] and a [`Callsite`], its place in the source. An
//!   [`Event`] happened inside a [`span`](Event::span). A [`Counter`] holds the samples that events gave it.
//! - On a [`Device`], each [`Stream`] runs [`Work`]: kernels, copies and fills. Work is caused by an [`ApiCall`]
//!   ([`call`](Work::call)) and belongs to the [`span`](Work::span) that made the call. The [`Attribution`] says how
//!   the span is known. [`Wait`]s and [`Allocation`]s belong to spans in the same way.
//! - A framework that fuses or defers work reports each [`OperationCall`]; [`Work::operations`] are those that a kernel
//!   performed.
//! - A [`StackSample`] says which functions and lines a thread was in; [`GpuCounters`] how busy a GPU's parts were.
//! - A [`Step`] is one iteration of the training loop. [`Losses`] counts the records that were lost, [`Gpu`] says
//!   whether GPUs were recorded, and [`Metadata`] names the process.
//!
//! Views such as [`Span`] and [`Work`] borrow the trace and are [`Copy`]. Their ids are indices, valid in one trace.
//!
//! ```
//! use kernspan::trace::{Span, Trace};
//!
//! /// Prints each piece of GPU work, and the spans it was launched from.
//! fn print_work(trace: &Trace) {
//!     for work in trace.work() {
//!         let stack: Vec<_> = work.span().into_iter().flat_map(Span::stack).map(Span::name).collect();
//!         println!("{} took {:?}, launched from {}", work.name(), work.duration(), stack.join(" in "));
//!     }
//! }
//! # print_work(&Trace::default());
//! ```

mod allocation;
mod api_call;
mod attribution;
mod batch;
mod callsite;
mod collective;
pub mod convention;
mod cpu_time;
mod device;
mod event;
mod fields;
mod framework;
mod gpu;
mod gpu_counters;
mod heap;
mod id;
mod input;
mod losses;
mod metadata;
mod name_key;
mod operation;
mod peak;
mod rows;
#[cfg(any(test, feature = "sample"))]
#[doc(hidden)]
pub mod sample;
mod span;
mod stack_sample;
mod step;
mod time;
mod torch;
mod wait;
mod work;

// The host: threads, spans, events and the fields on them.
pub use self::{
    callsite::{Callsite, Level},
    event::{Counter, Event},
    fields::{Fields, OpFacts, Value},
    heap::{HeapSample, HeapUse},
    input::InputStage,
    rows::{ThreadId, Track, TrackId},
    span::{Cut, Span, SpanId, TraceContext},
    stack_sample::{StackFrame, StackFrameId, StackSample, StackSampling},
    step::{Step, StepId},
    time::Timestamp,
};
// GPUs: devices, the work on their streams, and the calls that caused it.
pub use self::{
    allocation::{Allocation, MemoryChange},
    api_call::{Api, ApiCall, ApiCallId},
    attribution::{Attribution, Attributions},
    collective::Collective,
    device::{Device, DeviceId, Occupancy},
    gpu::Overhead,
    gpu_counters::{GpuCounters, GpuMetric, MetricMeaning},
    rows::{Stream, StreamId},
    wait::{Wait, WaitKind},
    work::{Detail, Direction, GraphNode, Kernel, MemoryCopy, MemoryFill, MemoryKind, Work, WorkId, WorkName},
};
// Frameworks: the operations that they report.
pub use self::{
    framework::Framework,
    operation::{Operation, OperationCall, OperationCallId},
};
// The window as a whole.
pub use self::{
    gpu::{Gpu, GpuLibrary, GpuProblem},
    losses::{Loss, Losses},
    metadata::Metadata,
    torch::Torch,
};
// The records behind the views, and the ids of private tables.
#[allow(unused_imports, reason = "only those who make samples use them: the sampler, the reader and tests")]
pub(crate) use self::stack_sample::{StackNode, StackSampleData};
#[cfg(feature = "read")]
pub(crate) use self::torch::{HostAllocation, Mark, ProcessNames, RowName};
pub(crate) use self::{
    allocation::AllocationData,
    api_call::ApiCallData,
    batch::{BatchId, BatchIds, Batches},
    callsite::{Callsite as CallsiteData, CallsiteId},
    cpu_time::SpanCpuTime,
    event::EventData,
    fields::{FieldData, FieldRange},
    heap::HeapSampleData,
    input::LoadsData,
    name_key::NameKey,
    operation::{OperationCallData, OperationId},
    rows::{Nesting, enclosing, nesting_order},
    span::SpanData,
    stack_sample::StackNodeId,
    torch::{GpuAnnotation, RowId},
    wait::WaitData,
    work::WorkData,
};

use rustc_hash::FxHashMap;
use std::{ops::Range, sync::Arc, time::Duration};

/// One recorded window: its steps, tracks, spans, events, counters, operations, GPU work and losses.
///
/// ```
/// use kernspan::{Collected, Profiler};
/// use tracing_subscriber::prelude::*;
///
/// let collected = Collected::new();
/// let (layer, profiler) = Profiler::builder().export(collected.clone()).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     let _step = tracing::info_span!("train_step").entered();
///     tracing::info_span!("forward", batch = 32).in_scope(|| ());
/// });
/// profiler.finish()?;
///
/// let trace = collected.only();
/// let forward = trace.spans().find(|span| span.name() == "forward").unwrap();
/// assert_eq!(forward.parent().unwrap().name(), "train_step");
/// assert_eq!(forward.field("batch").unwrap().as_u64(), Some(32));
/// assert!(trace.losses().is_empty());
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub(crate) window: u32,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) losses: Losses,
    pub(crate) filtered: Option<Level>,
    pub(crate) unrecorded_step: Option<Duration>,
    pub(crate) steps: Vec<Step>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) callsites: Vec<CallsiteData>,
    pub(crate) spans: Vec<SpanData>,
    pub(crate) events: Vec<EventData>,
    pub(crate) fields: Vec<FieldData>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) backtraces: FxHashMap<SpanId, Vec<String>>,
    /// The caller of each span whose caller is not its parent.
    pub(crate) callers: FxHashMap<SpanId, Option<SpanId>>,
    /// The first enters of the calls that a call follows from, by its own first enter.
    pub(crate) follows: FxHashMap<SpanId, Vec<SpanId>>,
    /// OpenTelemetry context by span; `None` if the span is known to have none.
    pub(crate) contexts: FxHashMap<SpanId, Option<TraceContext>>,
    /// What each span itself allocated and freed, if the heap was counted.
    pub(crate) heap: Option<FxHashMap<SpanId, HeapUse>>,
    /// The CPU time of each span that has it.
    pub(crate) cpu_times: FxHashMap<SpanId, SpanCpuTime>,
    pub(crate) heap_samples: Vec<HeapSampleData>,
    /// The lines of sampled allocations.
    pub(crate) heap_lines: Vec<String>,
    pub(crate) stack_sampling: Option<Box<StackSampling>>,
    pub(crate) gpu: Gpu,
    pub(crate) devices: Vec<Device>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) api_calls: Vec<ApiCallData>,
    pub(crate) operations: Vec<Arc<Operation>>,
    pub(crate) operation_calls: Vec<OperationCallData>,
    pub(crate) batches: Batches,
    pub(crate) work: Vec<WorkData>,
    /// What is known of the work that exchanges data between ranks.
    pub(crate) collectives: FxHashMap<WorkId, Arc<Collective>>,
    pub(crate) waits: Vec<WaitData>,
    pub(crate) allocations: Vec<AllocationData>,
    /// Allocations of the driver that a framework divides.
    pub(crate) pages: Vec<AllocationData>,
    /// The bytes that a framework's pool had in use and reserved when the window opened, by device.
    pub(crate) pools: FxHashMap<DeviceId, (u64, u64)>,
    pub(crate) overheads: Vec<Overhead>,
    pub(crate) gpu_counters: Vec<GpuCounters>,
    pub(crate) torch: Option<Box<Torch>>,
}

impl Trace {
    /// The number of the window in the run, counted from 0.
    pub fn window(&self) -> u32 {
        self.window
    }

    /// When the window opened.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When the window closed.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// The most verbose level of spans that could be recorded, if not all levels could: see
    /// [`Report::filtered`](crate::Report::filtered).
    pub fn filtered(&self) -> Option<Level> {
        self.filtered
    }

    /// How long the window was open.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }

    /// The process that the trace comes from.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The number of records that were lost, by cause.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The tracks: one per thread, and further ones where spans of a thread overlap without nesting.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The places in the source where the spans and events of this trace are written.
    pub fn callsites(&self) -> &[Callsite] {
        &self.callsites
    }

    /// All span instances, thread by thread, in the order they were entered: a parent comes before its children.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = Span<'_>> {
        (0..self.spans.len()).map(|index| Span::new(self, index))
    }

    /// The span with this id.
    ///
    /// # Panics
    ///
    /// If the id comes from another trace and is too large for this one.
    pub fn span(&self, id: SpanId) -> Span<'_> {
        assert!(id.index() < self.spans.len(), "{id:?} is not of this trace");
        Span::new(self, id.index())
    }

    /// The events, as written by `tracing::info!`, thread by thread, in chronological order.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        self.events.iter().map(|data| Event::new(self, data))
    }

    /// The counters, by name: see [`convention::COUNTER`].
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// Whether GPUs were recorded, and if not, why not.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The GPUs visible to the process.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The GPU with this number, if known.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// The rows of GPU work: one per stream, and further ones where work of a stream overlaps.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The work of the GPUs, stream by stream, in chronological order.
    pub fn work(&self) -> impl ExactSizeIterator<Item = Work<'_>> {
        (0..self.work.len()).map(|index| Work::new(self, index))
    }

    /// The work with these indices. Unlike `work().skip(…)`, this takes no time to reach the first.
    pub(crate) fn work_at(&self, range: Range<usize>) -> impl Iterator<Item = Work<'_>> {
        range.map(|index| Work::new(self, index))
    }

    /// The recorded calls to the GPUs' API, thread by thread, in chronological order.
    ///
    /// By default, these are calls that launch kernels, load them, copy memory, wait for the GPU, or allocate memory
    /// without a pool.
    pub fn api_calls(&self) -> impl ExactSizeIterator<Item = ApiCall<'_>> {
        (0..self.api_calls.len()).map(|index| ApiCall::new(self, index))
    }

    /// The API calls with these indices.
    pub(crate) fn api_calls_at(&self, range: Range<usize>) -> impl Iterator<Item = ApiCall<'_>> {
        range.map(|index| ApiCall::new(self, index))
    }

    /// The spans with these indices.
    pub(crate) fn spans_at(&self, range: Range<usize>) -> impl Iterator<Item = Span<'_>> {
        range.map(|index| Span::new(self, index))
    }

    /// The events with these indices.
    pub(crate) fn events_at(&self, range: Range<usize>) -> impl Iterator<Item = Event<'_>> {
        self.events[range].iter().map(|data| Event::new(self, data))
    }

    /// The operations that frameworks reported, thread by thread, in chronological order: see [`Operation`].
    pub fn operations(&self) -> impl ExactSizeIterator<Item = OperationCall<'_>> {
        (0..self.operation_calls.len()).map(|index| OperationCall::new(self, index))
    }

    /// The operations with these indices.
    pub(crate) fn operations_at(&self, range: Range<usize>) -> impl Iterator<Item = OperationCall<'_>> {
        range.map(|index| OperationCall::new(self, index))
    }

    /// Waits for GPUs, in chronological order.
    pub fn waits(&self) -> impl ExactSizeIterator<Item = Wait<'_>> {
        self.waits.iter().map(|data| Wait::new(self, data))
    }

    /// The periods taken by the GPU's profiling library itself.
    pub fn overheads(&self) -> &[Overhead] {
        &self.overheads
    }

    /// The parts specific to a PyTorch trace; `None` if kernspan recorded the trace.
    pub fn torch(&self) -> Option<&Torch> {
        self.torch.as_deref()
    }

    /// The track with this id.
    pub(crate) fn track(&self, id: TrackId) -> &Track {
        &self.tracks[id.index()]
    }

    /// The fields in `range`, of a span or event written at `callsite`.
    pub(crate) fn fields(&self, callsite: CallsiteId, range: FieldRange) -> Fields<'_> {
        Fields::new(&self.callsites[callsite.index()].fields, &self.fields[range.as_range()])
    }
}
