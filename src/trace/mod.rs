//! The model: what one recorded window holds, on one clock, immutable, free of `tracing` and of any GPU library.
//!
//! Exporters and reports see only this. Everything is stored flat, in the order of its id; [`Span`], [`Event`], [`Work`] and
//! their like are views that resolve names, parents and fields.

mod allocation;
mod api_call;
mod attribution;
mod batch;
mod callsite;
mod context;
mod counter;
mod device;
mod event;
mod fields;
mod gpu;
mod input;
mod losses;
mod metadata;
mod nesting;
mod operation;
mod peak;
#[cfg(test)]
pub(crate) mod sample;
mod span;
mod step;
mod stream;
mod time;
mod track;
mod value;
mod wait;
mod work;

pub(crate) use self::{
    allocation::AllocationData,
    api_call::ApiCallData,
    batch::{BatchId, BatchIds, Batches},
    callsite::Callsite as CallsiteData,
    event::EventData,
    fields::{FieldData, FieldRange},
    nesting::Nesting,
    operation::{OperationCallData, OperationId},
    span::{CallsiteId, SpanData},
    wait::WaitData,
    work::WorkData,
};
pub use self::{
    allocation::{Allocation, MemoryChange},
    api_call::{Api, ApiCall, ApiCallId},
    attribution::{Attribution, Attributions},
    callsite::{Callsite, Level},
    context::TraceContext,
    counter::Counter,
    device::{Device, DeviceId, Occupancy},
    event::Event,
    fields::{Fields, OpFacts, convention},
    gpu::{Gpu, GpuLibrary, GpuProblem},
    input::InputStage,
    losses::Losses,
    metadata::Metadata,
    operation::{Operation, OperationCall, OperationCallId},
    span::{Cut, Span, SpanId},
    step::{Step, StepId},
    stream::{Stream, StreamId},
    time::Timestamp,
    track::{ThreadId, Track, TrackId},
    value::Value,
    wait::{Overhead, Wait, WaitKind},
    work::{Detail, Direction, GraphNode, Kernel, MemoryCopy, MemoryFill, MemoryKind, Work, WorkId, WorkName},
};

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

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
    pub(crate) steps: Vec<Step>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) callsites: Vec<CallsiteData>,
    pub(crate) spans: Vec<SpanData>,
    pub(crate) events: Vec<EventData>,
    pub(crate) fields: Vec<FieldData>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) backtraces: BTreeMap<SpanId, Vec<String>>,
    /// Of spans that another layer has made one of OpenTelemetry's of; and none, of those begun before the window that it is known to have not.
    pub(crate) contexts: BTreeMap<SpanId, Option<TraceContext>>,
    pub(crate) gpu: Gpu,
    pub(crate) devices: Vec<Device>,
    pub(crate) streams: Vec<Stream>,
    pub(crate) api_calls: Vec<ApiCallData>,
    pub(crate) operations: Vec<Arc<Operation>>,
    pub(crate) operation_calls: Vec<OperationCallData>,
    pub(crate) batches: Batches,
    pub(crate) work: Vec<WorkData>,
    pub(crate) waits: Vec<WaitData>,
    pub(crate) allocations: Vec<AllocationData>,
    pub(crate) overheads: Vec<Overhead>,
}

impl Trace {
    /// Which window of the run this is, counted from 0.
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

    /// The most verbose level of spans that anybody could see, if that is not all: see [`Report::filtered`](crate::Report::filtered).
    pub fn filtered(&self) -> Option<Level> {
        self.filtered
    }

    /// How long the window was open.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }

    /// Where the trace comes from.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// What could not be kept.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The steps, in order of time.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The tracks: one a thread, and further ones where spans of a thread overlap without nesting.
    pub fn tracks(&self) -> &[Track] {
        &self.tracks
    }

    /// The places in the source that spans and events of this trace come from.
    pub fn callsites(&self) -> &[Callsite] {
        &self.callsites
    }

    /// Every span instance, thread by thread, in the order they were entered: a parent comes before its children.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = Span<'_>> {
        (0..self.spans.len()).map(|index| Span::new(self, index))
    }

    /// The span with this id.
    ///
    /// # Panics
    ///
    /// If the id is of another trace and too large for this one.
    pub fn span(&self, id: SpanId) -> Span<'_> {
        assert!(id.index() < self.spans.len(), "{id:?} is not of this trace");
        Span::new(self, id.index())
    }

    /// The events (`tracing::info!` and its kin), thread by thread, in order of time.
    pub fn events(&self) -> impl ExactSizeIterator<Item = Event<'_>> {
        self.events.iter().map(|data| Event::new(self, data))
    }

    /// The counters, by name: see [`convention::COUNTER`].
    pub fn counters(&self) -> &[Counter] {
        &self.counters
    }

    /// The counters that have a value in a step, with the last of them.
    pub(crate) fn counters_in(&self, step: &Step) -> impl Iterator<Item = (&str, f64)> {
        let (start, end) = (step.start(), step.end());
        self.counters.iter().filter_map(move |counter| {
            let before = counter.samples().partition_point(|&(at, _)| at < end);
            let &(at, value) = counter.samples().get(before.checked_sub(1)?)?;
            (at >= start).then_some((counter.name(), value))
        })
    }

    /// Whether GPUs were recorded, and if not, why not.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The GPUs that the process sees.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The GPU with this number, if it is known.
    pub fn device(&self, id: DeviceId) -> Option<&Device> {
        self.devices.iter().find(|device| device.id == id)
    }

    /// The rows of GPU work: one a stream, and further ones where work of a stream overlaps.
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// What the GPUs did, stream by stream, in order of time.
    pub fn work(&self) -> impl ExactSizeIterator<Item = Work<'_>> {
        (0..self.work.len()).map(|index| Work::new(self, index))
    }

    /// A part of it, by their places. Unlike `work().skip(…)`, it takes no time to get there.
    pub(crate) fn work_at(&self, places: Range<usize>) -> impl Iterator<Item = Work<'_>> {
        places.map(|index| Work::new(self, index))
    }

    /// The calls of the GPUs' API that were recorded, thread by thread, in order of time. By default, those that launch kernels
    /// and copy memory.
    pub fn api_calls(&self) -> impl ExactSizeIterator<Item = ApiCall<'_>> {
        (0..self.api_calls.len()).map(|index| ApiCall::new(self, index))
    }

    /// A part of them, by their places.
    pub(crate) fn api_calls_at(&self, places: Range<usize>) -> impl Iterator<Item = ApiCall<'_>> {
        places.map(|index| ApiCall::new(self, index))
    }

    /// A part of the spans, by their places.
    pub(crate) fn spans_at(&self, places: Range<usize>) -> impl Iterator<Item = Span<'_>> {
        places.map(|index| Span::new(self, index))
    }

    /// A part of the events, by their places.
    pub(crate) fn events_at(&self, places: Range<usize>) -> impl Iterator<Item = Event<'_>> {
        self.events[places].iter().map(|data| Event::new(self, data))
    }

    /// The operations that frameworks told of, thread by thread, in order of time: see [`Operation`].
    pub fn operations(&self) -> impl ExactSizeIterator<Item = OperationCall<'_>> {
        (0..self.operation_calls.len()).map(|index| OperationCall::new(self, index))
    }

    /// A part of them, by their places.
    pub(crate) fn operations_at(&self, places: Range<usize>) -> impl Iterator<Item = OperationCall<'_>> {
        places.map(|index| OperationCall::new(self, index))
    }

    /// Waits for GPUs, in order of time.
    pub fn waits(&self) -> impl ExactSizeIterator<Item = Wait<'_>> {
        self.waits.iter().map(|data| Wait::new(self, data))
    }

    /// Allocations and frees of GPU memory, in order of time.
    pub fn allocations(&self) -> impl ExactSizeIterator<Item = Allocation<'_>> {
        self.allocations.iter().map(|data| Allocation::new(self, data))
    }

    /// Time that the GPU's profiling library took.
    pub fn overheads(&self) -> &[Overhead] {
        &self.overheads
    }

    /// How it is known which spans the work belongs to.
    pub fn attributions(&self) -> Attributions {
        let mut counts = Attributions::default();
        self.work.iter().for_each(|work| counts.count(work.attribution));
        counts
    }

    /// The track with this id.
    pub(crate) fn track(&self, id: TrackId) -> &Track {
        &self.tracks[id.index()]
    }

    /// The fields in `range`, which belong to something written at `callsite`.
    pub(crate) fn fields(&self, callsite: CallsiteId, range: FieldRange) -> Fields<'_> {
        Fields::new(&self.callsites[callsite.index()].fields, &self.fields[range.as_range()])
    }
}
