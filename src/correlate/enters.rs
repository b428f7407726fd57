//! Joins the enters of a span that belong to one call.

use crate::{
    clock::Ticks,
    recording::RegistryId,
    trace::{SpanData, SpanId, Trace},
};
use rustc_hash::FxHashMap;

/// The enters of all spans, in the order of the trace's spans.
#[derive(Debug, Default)]
pub(super) struct Enters(Vec<Enter>);

#[derive(Debug)]
struct Enter {
    /// When the span was entered; 0 if that was before the window.
    at: Ticks,
    id: RegistryId,
    span: SpanId,
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
        self.0.reserve_exact(enters);
    }

    /// Adds an enter, whose span is the latest in the trace.
    pub(super) fn add(&mut self, at: Option<Ticks>, id: RegistryId, span: SpanId) {
        self.0.push(Enter { at: at.unwrap_or_default(), id, span });
    }

    /// Links each enter to the one before it in its call: see [`Span::previous`](crate::trace::Span::previous).
    ///
    /// A call ends with its step. But if steps end because a span closes, as that of a request, futures of other
    /// requests go on, and steps say nothing of them.
    pub(super) fn link(mut self, trace: &mut Trace, steps_by_close: bool) {
        // The registry counts in the upper bits how often it has used a slot, and starts again after some thousand. A
        // slot holds one span at a time, so an id seen again after another id of its slot is that of a new span.
        const SLOT: u64 = (1 << 51) - 1;
        // Those of a thread are in order already, and a parent comes before its children. A stable sort would need more
        // memory.
        self.0.sort_unstable_by_key(|enter| (enter.at, enter.span));
        let mut calls: FxHashMap<u64, Call> = FxHashMap::default();
        let mut firsts: Vec<SpanId> = (0..trace.spans.len()).map(SpanId::new).collect();
        for Enter { id, span, .. } in self.0 {
            let parent = trace.spans[span.index()].parent.map(|parent| firsts[parent.index()]);
            let continues = |call: &&mut Call| {
                call.id == id
                    && call.continues(trace, span, parent)
                    && (steps_by_close || !call.is_in_earlier_step(trace, span))
            };
            match calls.get_mut(&(id & SLOT)).filter(continues) {
                Some(call) => {
                    trace.spans[span.index()].previous = Some(call.latest);
                    firsts[span.index()] = call.first;
                    call.latest = span;
                    call.parent = call.parent.or(parent);
                }
                None => {
                    calls.insert(id & SLOT, Call { id, first: span, latest: span, parent });
                }
            }
        }
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
