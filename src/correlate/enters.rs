//! Joins the enters of a span that belong to one call, and finds the callers of spans.

use crate::{
    clock::Ticks,
    recording::RegistryId,
    trace::{SpanData, SpanId, Trace},
};
use rustc_hash::FxHashMap;
use std::num::NonZeroU64;

/// The enters of all spans, and the parents that `tracing` has for some of them.
#[derive(Debug, Default)]
pub(super) struct Enters {
    /// In the order of the trace's spans.
    enters: Vec<Enter>,
    /// In the order of the trace's spans.
    parents: Vec<(SpanId, NonZeroU64)>,
}

#[derive(Clone, Copy, Debug)]
struct Enter {
    /// When the span was entered; 0 if that was before the window.
    at: Ticks,
    id: RegistryId,
    span: SpanId,
}

/// The calls of the enters so far.
#[derive(Debug)]
struct Calls {
    /// The latest call of each span, by its slot in the registry.
    latest: FxHashMap<u64, Call>,
    /// The first enter of the call of each enter.
    firsts: Vec<SpanId>,
    /// Whether steps end because a span closes.
    steps_by_close: bool,
}

/// The latest call of a span.
#[derive(Debug)]
struct Call {
    id: RegistryId,
    first: SpanId,
    latest: SpanId,
    /// The first enter of the call that is around this one, if there is one.
    parent: Option<SpanId>,
}

impl Enters {
    /// Makes room for this many enters.
    pub(super) fn reserve(&mut self, enters: usize) {
        self.enters.reserve_exact(enters);
    }

    /// Adds an enter, whose span is the latest in the trace. `parent` is the span around it on the thread.
    pub(super) fn add(&mut self, at: Option<Ticks>, id: RegistryId, span: SpanId, parent: Option<SpanId>) {
        // A parent has to come first, even if the cycle counters of two cores differ.
        let earliest = parent.map_or(Ticks::default(), |parent| self.enters[parent.index()].at);
        self.enters.push(Enter { at: at.unwrap_or_default().max(earliest), id, span });
    }

    /// Adds the parent that `tracing` has for the span of the latest enter, or [`NO_SPAN`](crate::recording::NO_SPAN).
    pub(super) fn add_parent(&mut self, id: NonZeroU64) {
        self.parents.extend(self.enters.last().map(|enter| (enter.span, id)));
    }

    /// Links each enter to the one before it in its call, and to its caller if that is not its parent: see
    /// [`Span::previous`](crate::trace::Span::previous) and [`Span::caller`](crate::trace::Span::caller).
    ///
    /// A call ends with its step. But if steps end because a span closes, as that of a request, futures of other
    /// requests go on, and steps say nothing of them.
    pub(super) fn link(mut self, trace: &mut Trace, steps_by_close: bool) {
        // Those of a thread are in order already, and a parent comes before its children. A stable sort would need more
        // memory.
        self.enters.sort_unstable_by_key(|enter| (enter.at, enter.span));
        let mut calls = Calls {
            latest: FxHashMap::default(),
            firsts: (0..trace.spans.len()).map(SpanId::new).collect(),
            steps_by_close,
        };
        let before_window = self.enters.partition_point(|enter| enter.at == Ticks::default());
        let (open, entered) = self.enters.split_at(before_window);
        // It is not known in which order these were entered.
        open.iter().for_each(|enter| calls.add(enter, trace));
        open.iter().for_each(|enter| self.set_caller(enter, &calls, trace));
        if !trace.callers.is_empty() && trace.caller_order().is_none() {
            trace.callers.clear();
        }
        for enter in entered {
            if !self.parents.is_empty() {
                self.set_caller(enter, &calls, trace);
            }
            calls.add(enter, trace);
        }
    }

    /// Sets the caller of a span, if `tracing` has a parent for it.
    fn set_caller(&self, enter: &Enter, calls: &Calls, trace: &mut Trace) {
        if let Ok(index) = self.parents.binary_search_by_key(&enter.span, |(span, _)| *span) {
            let (span, id) = self.parents[index];
            let caller = calls.caller(span, id.get(), trace);
            if caller != trace.spans[span.index()].parent {
                trace.callers.insert(span, caller);
            }
        }
    }
}

impl Calls {
    // The registry counts in the upper bits how often it has used a slot, and starts again after some thousand. A slot
    // holds one span at a time, so an id seen again after another id of its slot is that of a new span.
    const SLOT: u64 = (1 << 51) - 1;

    /// Adds an enter, and links it to the one before it in its call.
    fn add(&mut self, &Enter { id, span, .. }: &Enter, trace: &mut Trace) {
        let parent = trace.spans[span.index()].parent.map(|parent| self.firsts[parent.index()]);
        let steps_by_close = self.steps_by_close;
        let continues = |call: &&mut Call| {
            call.id == id
                && call.continues(trace, span, parent)
                && (steps_by_close || !call.is_in_earlier_step(trace, span))
        };
        match self.latest.get_mut(&(id & Self::SLOT)).filter(continues) {
            Some(call) => {
                trace.spans[span.index()].previous = Some(call.latest);
                self.firsts[span.index()] = call.first;
                call.latest = span;
                call.parent = call.parent.or(parent);
            }
            None => {
                self.latest.insert(id & Self::SLOT, Call { id, first: span, latest: span, parent });
            }
        }
    }

    /// Returns the enter of the span with this id that is around `span` on its thread, or else the latest.
    fn caller(&self, span: SpanId, id: RegistryId, trace: &Trace) -> Option<SpanId> {
        let call = self.latest.get(&(id & Self::SLOT)).filter(|call| call.id == id)?;
        let parent = |span: SpanId| trace.spans[span.index()].parent;
        let around = std::iter::successors(parent(span), |outer| parent(*outer))
            .find(|outer| self.firsts[outer.index()] == call.first);
        Some(around.unwrap_or(call.latest))
    }
}

impl Call {
    /// Whether another enter of the span belongs to this call. `parent` is the first enter of the call around it.
    fn continues(&self, trace: &Trace, span: SpanId, parent: Option<SpanId>) -> bool {
        let same_parent = self.parent.is_none() || parent.is_none() || self.parent == parent;
        let (latest, next) = (&trace.spans[self.latest.index()], &trace.spans[span.index()]);
        // Times of two threads may differ from the order of their ticks, at the edge of a window.
        let in_order = (latest.start, self.latest) < (next.start, span);
        same_parent && in_order
    }

    /// Whether a step ended between the latest enter and this one, on the thread of both.
    fn is_in_earlier_step(&self, trace: &Trace, span: SpanId) -> bool {
        is_step_between(trace, &trace.spans[self.latest.index()], &trace.spans[span.index()])
    }
}

/// Whether a step ended between two enters, on the thread of both.
fn is_step_between(trace: &Trace, earlier: &SpanData, later: &SpanData) -> bool {
    let thread = |span: &SpanData| trace.tracks[span.track.index()].thread;
    let ended_by = |time| trace.steps.partition_point(|step| step.end <= time);
    let ended = ended_by(earlier.end)..ended_by(later.start);
    let on_thread = |index: usize| trace.tracks[trace.steps[index].track.index()].thread == thread(later);
    thread(earlier) == thread(later) && ended.into_iter().any(on_thread)
}
