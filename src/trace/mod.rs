//! The model: what one recorded window holds, on one clock, immutable, free of `tracing` and of any GPU library.
//!
//! Exporters and reports see only this. Everything is stored flat, in the order of its id; [`Span`] and [`Event`] are views
//! that resolve names, parents and fields.

mod callsite;
mod counter;
mod event;
mod fields;
mod losses;
mod metadata;
mod span;
mod step;
mod time;
mod track;
mod value;

pub(crate) use self::{
    callsite::Callsite as CallsiteData,
    event::EventData,
    fields::{FieldData, FieldRange},
    span::{CallsiteId, SpanData},
};
pub use self::{
    callsite::{Callsite, Level},
    counter::Counter,
    event::Event,
    fields::{Fields, OpFacts, convention},
    losses::Losses,
    metadata::Metadata,
    span::{Cut, Span, SpanId},
    step::{Step, StepId},
    time::Timestamp,
    track::{ThreadId, Track, TrackId},
    value::Value,
};

use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// One recorded window: its steps, tracks, spans, events, counters and losses.
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
    pub(crate) steps: Vec<Step>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) callsites: Vec<CallsiteData>,
    pub(crate) spans: Vec<SpanData>,
    pub(crate) events: Vec<EventData>,
    pub(crate) fields: Vec<FieldData>,
    pub(crate) counters: Vec<Counter>,
    pub(crate) backtraces: BTreeMap<SpanId, Vec<String>>,
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

    /// The track with this id.
    pub(crate) fn track(&self, id: TrackId) -> &Track {
        &self.tracks[id.index()]
    }

    /// The fields in `range`, which belong to something written at `callsite`.
    pub(crate) fn fields(&self, callsite: CallsiteId, range: FieldRange) -> Fields<'_> {
        Fields::new(&self.callsites[callsite.index()], &self.fields[range.as_range()])
    }
}
