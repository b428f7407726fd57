//! `tracing` events, and the counters whose samples they carry.

use super::{Callsite, CallsiteId, FieldRange, Fields, SpanId, Step, Timestamp, Trace, Track, TrackId, Value};
use std::sync::Arc;

/// The stored data of an [`Event`].
#[derive(Clone, Debug)]
pub(crate) struct EventData {
    pub(crate) callsite: CallsiteId,
    pub(crate) track: TrackId,
    pub(crate) span: Option<SpanId>,
    pub(crate) at: Timestamp,
    pub(crate) fields: FieldRange,
}

/// A `tracing` event: something that happened at one moment, as written by `tracing::info!`.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    trace: &'a Trace,
    data: &'a EventData,
}

impl<'a> Event<'a> {
    pub(super) fn new(trace: &'a Trace, data: &'a EventData) -> Self {
        Self { trace, data }
    }

    /// The message, or the name of the callsite if there is no message.
    pub fn message(self) -> &'a str {
        self.fields().get("message").and_then(Value::as_str).unwrap_or_else(|| self.callsite().name())
    }

    /// The place in the source where the event is written.
    pub fn callsite(self) -> &'a Callsite {
        &self.trace.callsites[self.data.callsite.index()]
    }

    /// The track of the thread it happened on.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data.track)
    }

    pub(crate) fn track_id(self) -> TrackId {
        self.data.track
    }

    /// The innermost span open on the thread at that moment.
    pub fn span(self) -> Option<super::Span<'a>> {
        self.data.span.map(|id| self.trace.span(id))
    }

    /// When it happened.
    pub fn at(self) -> Timestamp {
        self.data.at
    }

    /// The fields, including the message.
    pub fn fields(self) -> Fields<'a> {
        self.trace.fields(self.data.callsite, self.data.fields)
    }
}

/// A named number that changes over time, such as a loss: see [`convention::COUNTER`](super::convention::COUNTER).
#[derive(Clone, Debug, PartialEq)]
pub struct Counter {
    pub(crate) name: Arc<str>,
    pub(crate) samples: Vec<(Timestamp, f64)>,
}

impl Counter {
    /// Sorts counters by name, and their samples by time.
    pub(crate) fn sort(counters: &mut [Self]) {
        counters.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        counters.iter_mut().for_each(|counter| counter.samples.sort_by_key(|&(at, _)| at));
    }

    /// The name, without the prefix `counter.`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The samples, in chronological order. A value may be infinite or not a number, since a diverged loss is worth
    /// seeing.
    pub fn samples(&self) -> &[(Timestamp, f64)] {
        &self.samples
    }
}

impl Trace {
    /// The counters with a sample in a step, each with its last value.
    ///
    /// ```
    /// # use kernspan::Trace;
    /// /// The loss of each step that has one.
    /// fn losses(trace: &Trace) -> Vec<f64> {
    ///     let counters = trace.steps().iter().flat_map(|step| trace.counters_in(step));
    ///     counters.filter(|(name, _)| *name == "loss").map(|(_, value)| value).collect()
    /// }
    /// ```
    pub fn counters_in(&self, step: &Step) -> impl Iterator<Item = (&str, f64)> {
        let (start, end) = (step.start(), step.end());
        self.counters.iter().filter_map(move |counter| {
            let before = counter.samples().partition_point(|&(at, _)| at < end);
            let &(at, value) = counter.samples().get(before.checked_sub(1)?)?;
            (at >= start).then_some((counter.name(), value))
        })
    }
}
