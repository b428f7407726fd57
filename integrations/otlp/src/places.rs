//! Where each span of a window is: in the trace of its step, or in another's, where another layer of the subscriber sends the span itself or one around
//! it.

#[cfg(test)]
mod tests;

use super::{
    ids::{Of, Parent, SpanKey, TraceId},
    run_trace::{RunTrace, StepTrace},
};
use crate::trace::{Span, StepId, Trace, TraceContext, Work};
use rustc_hash::FxHashMap;

/// Where a span is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the trace of this step.
    Home(StepTrace, SpanKey),
    /// In another's trace.
    Foreign(TraceId, SpanKey),
    /// In another's trace, of which nothing is sent.
    Unsampled,
}

/// What something is sent as a child of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inside {
    pub(super) trace: TraceId,
    pub(super) parent: SpanKey,
    /// What it is nested in, if that is in the trace of another step.
    pub(super) outside: Option<(TraceId, SpanKey)>,
}

/// The ids that things in a step have, and whether its trace is sent.
#[derive(Clone, Copy, Debug)]
struct Home {
    ids: StepTrace,
    sent: bool,
}

/// Where all of a window is.
#[derive(Debug)]
pub(super) struct Places<'a> {
    trace: &'a Trace,
    /// By step.
    steps: Vec<Home>,
    /// For what is in no step.
    rest: Home,
    /// By span; none where the step is not sent.
    places: Vec<Option<Place>>,
    /// Whether another layer sends spans, of any that were recorded.
    has_foreign: bool,
    /// Other traces that were in a step, each by its outermost span.
    links: FxHashMap<Option<StepId>, Vec<(TraceId, SpanKey)>>,
}

impl<'a> Places<'a> {
    /// Other traces that a step is linked to, at the most.
    const MOST_LINKS: usize = 32;

    /// If nothing is `homeless`, there is no trace for what is in no step.
    pub(super) fn new(trace: &'a Trace, run: &RunTrace, homeless: bool) -> Self {
        let home = |number| Home { ids: run.step_ids(number), sent: run.step(number).is_some() };
        let window = trace.window();
        let mut places = Self {
            trace,
            steps: trace.steps().iter().map(|step| home(step.number())).collect(),
            rest: Home { ids: run.window_ids(window), sent: homeless && run.window(window).is_some() },
            places: Vec::with_capacity(trace.spans().len()),
            has_foreign: trace.contexts.values().any(Option::is_some),
            links: FxHashMap::default(),
        };
        // A parent comes before its children.
        for span in trace.spans() {
            let place = match span.context() {
                Some(context) => Some(foreign(context, run)),
                None => places.place_of_ours(span),
            };
            places.places.push(place);
            if let Some(Place::Foreign(of, key)) = place.filter(|_| span.context().is_some()) {
                places.link(span, of, key);
            }
        }
        places
    }

    fn place_of_ours(&self, span: Span<'_>) -> Option<Place> {
        let key = self.ids_of(span.step_id()).trace.span(Of::Span, span.id().index() as u64);
        let home = self.home_of(span.step_id());
        match self.parent_of(span) {
            Some(Place::Foreign(trace, _)) => Some(Place::Foreign(trace, key)),
            Some(Place::Unsampled) => Some(Place::Unsampled),
            Some(Place::Home(..)) | None => home.map(|home| Place::Home(home, key)),
        }
    }

    /// Has the steps that a span was in know of its trace, if it is the outermost there.
    fn link(&mut self, span: Span<'_>, of: TraceId, key: SpanKey) {
        let is_nested = span
            .stack()
            .skip(1)
            .any(|outer| matches!(self.places[outer.id().index()], Some(Place::Foreign(trace, _)) if trace == of));
        if is_nested {
            return;
        }
        let steps = self.trace.steps();
        let first = steps.partition_point(|step| step.end() <= span.start());
        let during = steps[first..].iter().take_while(|step| step.start() < span.end().max(span.start())).count();
        let in_steps = (first..first + during).map(|place| Some(StepId::new(place)));
        let own = span.step_id();
        for step in in_steps.chain((during == 0).then_some(own)) {
            let links = self.links.entry(step).or_default();
            if links.len() < Self::MOST_LINKS && links.iter().all(|(known, _)| *known != of) {
                links.push((of, key));
            }
        }
    }

    /// Whether nobody could say if another layer sends the span: it was open through the whole window, on a thread that others did not hear of it.
    /// Where there is such a layer, then it sends it.
    fn is_unknown(&self, span: Span<'_>) -> bool {
        let cut = span.cut();
        self.has_foreign && cut.start && cut.end && !self.trace.contexts.contains_key(&span.id())
    }

    /// The ids of things in this step.
    pub(super) fn ids_of(&self, step: Option<StepId>) -> StepTrace {
        step.map_or(self.rest, |step| self.steps[step.index()]).ids
    }

    /// The trace of a step, if it is sent.
    pub(super) fn home_of(&self, step: Option<StepId>) -> Option<StepTrace> {
        let home = step.map_or(self.rest, |step| self.steps[step.index()]);
        home.sent.then_some(home.ids)
    }

    /// Other traces that were in this step.
    pub(super) fn links(&self, step: Option<StepId>) -> &[(TraceId, SpanKey)] {
        self.links.get(&step).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_foreign(&self) -> bool {
        self.has_foreign
    }

    pub(super) fn of(&self, span: Span<'_>) -> Option<Place> {
        self.places[span.id().index()]
    }

    /// What a span is sent as, if it is: its own key, and what it is in.
    pub(super) fn sent(&self, span: Span<'_>) -> Option<(SpanKey, Inside)> {
        if span.context().is_some() || self.is_unknown(span) {
            return None;
        }
        let key = match self.of(span)? {
            Place::Home(_, key) | Place::Foreign(_, key) => key,
            Place::Unsampled => return None,
        };
        Some((key, self.inside(self.parent_of(span), span.step_id())?))
    }

    /// What a piece of work is in, if it is sent.
    pub(super) fn sent_work(&self, work: Work<'_>) -> Option<Inside> {
        self.inside(self.owner_of(work).and_then(|span| self.of(span)), work.step_id())
    }

    /// The span that a piece of work belongs to.
    pub(super) fn owner_of(&self, work: Work<'a>) -> Option<Span<'a>> {
        work.span()?.stack().find(|&span| !self.is_unknown(span))
    }

    fn parent_of(&self, span: Span<'_>) -> Option<Place> {
        self.of(span.stack().skip(1).find(|&outer| !self.is_unknown(outer))?)
    }

    fn inside(&self, owner: Option<Place>, step: Option<StepId>) -> Option<Inside> {
        let home = self.home_of(step);
        match owner {
            Some(Place::Foreign(trace, parent)) => Some(Inside { trace, parent, outside: None }),
            Some(Place::Unsampled) => None,
            Some(Place::Home(of, parent)) if Some(of) == home => {
                Some(Inside { trace: of.trace, parent, outside: None })
            }
            // What lies across the edge of a step is in the trace of the step it began in.
            Some(Place::Home(of, key)) => {
                home.map(|home| Inside { trace: home.trace, parent: home.root, outside: Some((of.trace, key)) })
            }
            None => home.map(|home| Inside { trace: home.trace, parent: home.root, outside: None }),
        }
    }
}

fn foreign(context: TraceContext, run: &RunTrace) -> Place {
    let (trace, span) = (TraceId::foreign(context.trace_id), SpanKey::foreign(context.span_id));
    let is_sent = run.sends_under(Parent { trace, span, sampled: context.sampled });
    if is_sent { Place::Foreign(trace, span) } else { Place::Unsampled }
}
