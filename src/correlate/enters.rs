//! Joins the enters of a span that belong to one call, and finds the callers of spans.

use crate::{
    clock::Ticks,
    gallop_search::GallopSearch,
    recording::RegistryId,
    trace::{SpanData, SpanId, Trace},
};
use rustc_hash::FxHashMap;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut, hash_map::Entry},
    num::NonZeroU64,
    ops::Range,
};

/// The enters of all spans, and the parents that `tracing` has for some of them.
#[derive(Debug, Default)]
pub(super) struct Enters {
    /// In the order of the trace's spans.
    enters: Vec<Enter>,
    /// In the order of the trace's spans.
    parents: Vec<(SpanId, NonZeroU64)>,
    follows: Vec<Follows>,
}

/// A span follows from another one.
#[derive(Clone, Copy, Debug)]
struct Follows {
    at: Ticks,
    id: RegistryId,
    cause: RegistryId,
}

#[derive(Clone, Copy, Debug)]
struct Enter {
    /// When the span was entered; 0 if that was before the window.
    at: Ticks,
    id: RegistryId,
    span: SpanId,
    /// Whether the span was made outside the one around this enter.
    made_outside: bool,
}

/// The number of parts in order from which on sorting all enters is quicker than merging the parts.
const MOST_RUNS: usize = 64;

/// The enters of all threads in the order of their times. Those of a thread are in order already, and a parent comes
/// before its children, so that merging the threads' needs no memory for a second list.
struct InOrder<'a> {
    enters: &'a [Enter],
    /// The part that has the next enter.
    run: Range<usize>,
    /// The next enter of each other part, and what is left of the part; the earliest is on top.
    others: BinaryHeap<Reverse<(Ticks, SpanId, usize, usize)>>,
}

impl<'a> InOrder<'a> {
    fn new(enters: &'a [Enter], mut runs: Vec<usize>) -> Self {
        runs.push(enters.len());
        let run = |run: &[usize]| {
            let first = enters.get(run[0])?;
            Some(Reverse((first.at, first.span, run[0], run[1])))
        };
        let mut others: BinaryHeap<_> = runs.windows(2).filter_map(run).collect();
        let run = others.pop().map_or(0..0, |Reverse((_, _, start, end))| start..end);
        Self { enters, run, others }
    }
}

impl Iterator for InOrder<'_> {
    type Item = Enter;

    fn next(&mut self) -> Option<Enter> {
        let enter = *self.enters[self.run.clone()].first()?;
        self.run.start += 1;
        if let Some(mut other) = self.others.peek_mut() {
            let Reverse((at, span, start, end)) = *other;
            match self.enters[self.run.clone()].first() {
                Some(next) if (next.at, next.span) < (at, span) => {}
                Some(next) => {
                    *other = Reverse((next.at, next.span, self.run.start, self.run.end));
                    self.run = start..end;
                }
                None => {
                    PeekMut::pop(other);
                    self.run = start..end;
                }
            }
        }
        Some(enter)
    }
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
    /// The causes of spans that have not been entered yet.
    causes: FxHashMap<RegistryId, Vec<SpanId>>,
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
    ///
    /// `made_outside` says whether it was [made outside](crate::recording::Record::EnterKept) that.
    pub(super) fn add(
        &mut self,
        at: Option<Ticks>,
        id: RegistryId,
        span: SpanId,
        parent: Option<SpanId>,
        made_outside: bool,
    ) {
        // A parent has to come first, even if the cycle counters of two cores differ.
        let earliest = parent.map_or(Ticks::default(), |parent| self.enters[parent.index()].at);
        self.enters.push(Enter { at: at.unwrap_or_default().max(earliest), id, span, made_outside });
    }

    /// Adds the parent that `tracing` has for the span of the latest enter.
    pub(super) fn add_parent(&mut self, id: NonZeroU64) {
        self.parents.extend(self.enters.last().map(|enter| (enter.span, id)));
    }

    /// Adds that a span follows from another one.
    pub(super) fn add_follows(&mut self, at: Ticks, id: RegistryId, cause: RegistryId) {
        self.follows.push(Follows { at, id, cause });
    }

    /// Links each enter to the one before it in its call, and to its caller if that is not its parent: see
    /// [`Span::previous`](crate::trace::Span::previous) and [`Span::caller`](crate::trace::Span::caller). Links calls
    /// to those that they [follow from](crate::trace::Span::follows_from).
    ///
    /// A call ends with its step. But if steps end because a span closes, as that of a request, futures of other
    /// requests go on, and steps say nothing of them.
    pub(super) fn link(mut self, trace: &mut Trace, steps_by_close: bool) {
        let runs = self.sorted_runs();
        let mut calls = Calls {
            latest: FxHashMap::default(),
            firsts: (0..trace.spans.len()).map(SpanId::new).collect(),
            steps_by_close,
            causes: FxHashMap::default(),
        };
        self.follows.sort_by_key(|follows| follows.at);
        let mut follows = self.follows.iter().peekable();
        let mut entered = InOrder::new(&self.enters, runs).peekable();
        let mut open: Vec<Enter> = Vec::new();
        while let Some(enter) = entered.next_if(|enter| enter.at == Ticks::default()) {
            open.push(enter);
        }
        let mut search = GallopSearch::default();
        // It is not known in which order these were entered.
        open.iter().for_each(|enter| calls.add(enter, trace));
        open.iter().for_each(|enter| self.set_caller(enter, &calls, &mut search, trace));
        if !trace.callers.is_empty() && trace.caller_order().is_none() {
            trace.callers.clear();
        }
        for enter in entered {
            while let Some(follows) = follows.next_if(|follows| follows.at <= enter.at) {
                calls.follow(follows, trace);
            }
            if !self.parents.is_empty() {
                self.set_caller(&enter, &calls, &mut search, trace);
            }
            calls.add(&enter, trace);
        }
        follows.for_each(|follows| calls.follow(follows, trace));
    }

    /// Returns where parts of the enters begin that are in order, each. Sorts the enters if there are many.
    fn sorted_runs(&mut self) -> Vec<usize> {
        let key = |enter: &Enter| (enter.at, enter.span);
        let descents = self.enters.windows(2).enumerate().filter(|(_, pair)| key(&pair[0]) > key(&pair[1]));
        let mut runs: Vec<_> = descents.map(|(index, _)| index + 1).take(MOST_RUNS).collect();
        if runs.len() == MOST_RUNS {
            // A stable sort would need more memory.
            self.enters.sort_unstable_by_key(key);
            runs.clear();
        }
        runs.insert(0, 0);
        runs
    }

    /// Sets the caller of a span, if `tracing` has a parent for it that was entered in the window. Otherwise the span
    /// lies inside the one around it on its thread, like any other.
    fn set_caller(&self, enter: &Enter, calls: &Calls, search: &mut GallopSearch, trace: &mut Trace) {
        if let Some(index) = search.find(&self.parents, |(span, _)| span.cmp(&enter.span)) {
            let (span, id) = self.parents[index];
            let caller = calls.caller(span, id.get(), trace);
            if caller.is_some() && caller != trace.spans[span.index()].parent {
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
    fn add(&mut self, &Enter { id, span, made_outside, .. }: &Enter, trace: &mut Trace) {
        let parent = trace.spans[span.index()].parent.map(|parent| self.firsts[parent.index()]);
        if !self.causes.is_empty()
            && let Some(causes) = self.causes.remove(&id)
        {
            // This is its first enter.
            trace.follows.insert(span, causes);
        }
        let steps_by_close = self.steps_by_close;
        let continues = |call: &Call| {
            call.id == id
                && call.continues(trace, span, parent)
                && !(made_outside && call.is_in_same_enter(trace, span))
                && (steps_by_close || !call.is_in_earlier_step(trace, span))
        };
        let next = Call { id, first: span, latest: span, parent };
        match self.latest.entry(id & Self::SLOT) {
            Entry::Vacant(slot) => drop(slot.insert(next)),
            Entry::Occupied(slot) => {
                let call = slot.into_mut();
                if !continues(call) {
                    *call = next;
                    return;
                }
                trace.spans[span.index()].previous = Some(call.latest);
                self.firsts[span.index()] = call.first;
                call.latest = span;
                call.parent = call.parent.or(parent);
            }
        }
    }

    /// Notes that a span follows from another one. It has been entered already, or else it will be.
    fn follow(&mut self, &Follows { id, cause, .. }: &Follows, trace: &mut Trace) {
        let first = |id: RegistryId| {
            let call = self.latest.get(&(id & Self::SLOT)).filter(|call| call.id == id)?;
            Some(call.first)
        };
        // A cause that was not entered in the window is not in the trace.
        let Some(cause) = first(cause) else { return };
        let causes = match first(id) {
            Some(first) => trace.follows.entry(first).or_default(),
            None => self.causes.entry(id).or_default(),
        };
        if !causes.contains(&cause) {
            causes.push(cause);
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

    /// Whether the latest enter and this one are in the same enter of the span around them, and so on the same thread.
    fn is_in_same_enter(&self, trace: &Trace, span: SpanId) -> bool {
        let parent = trace.spans[span.index()].parent;
        parent.is_some() && trace.spans[self.latest.index()].parent == parent
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

#[cfg(test)]
mod tests {
    use super::{Enter, Enters, InOrder};
    use crate::{clock::Ticks, trace::SpanId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn threads_are_merged_in_the_order_of_time(
            mut threads in prop::collection::vec(prop::collection::vec(0_u64..50, 0..40), 0..100),
            is_sorted: bool,
        ) {
            threads.iter_mut().filter(|_| is_sorted).for_each(|times| times.sort_unstable());
            let enter = |(span, at)| Enter { at: Ticks(at), id: 1, span: SpanId::new(span), made_outside: false };
            let list: Vec<_> = threads.concat().into_iter().enumerate().map(enter).collect();
            let mut enters = Enters { enters: list.clone(), ..Enters::default() };
            let runs = enters.sorted_runs();
            let key = |enter: &Enter| (enter.at, enter.span);
            let merged: Vec<_> = InOrder::new(&enters.enters, runs).map(|enter| key(&enter)).collect();
            let mut sorted: Vec<_> = list.iter().map(key).collect();
            sorted.sort_unstable();
            prop_assert_eq!(merged, sorted);
        }
    }
}
