//! The trace and the parent of each span that is sent: in the trace of its step, or under a span that another layer of
//! the subscriber sends.

#[cfg(test)]
mod tests;

use crate::{
    ids::{IdKind, Parent, SpanKey, TraceId},
    run_trace::{RunTrace, StepTrace},
};
use kernspan::trace::{Span, StepId, Trace, TraceContext, Work};
use rustc_hash::{FxHashMap, FxHashSet};

/// The trace that a span belongs to, and its id there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In the trace of a step.
    Step(StepTrace, SpanKey),
    /// In a trace of another layer: the span is that layer's, or nested in one of its spans.
    Foreign(TraceId, SpanKey),
    /// In a trace of another layer that is not sampled, so none of it is sent.
    Unsampled,
}

/// The parent that something is sent with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParentSpan {
    pub(crate) trace: TraceId,
    pub(crate) span: SpanKey,
    /// The true parent, if it is in the trace of another step. It becomes a link.
    pub(crate) other_step: Option<(TraceId, SpanKey)>,
}

/// The ids of a step, and whether its trace is sent.
#[derive(Clone, Copy, Debug)]
struct StepIds {
    ids: StepTrace,
    is_sent: bool,
}

/// The placements of all spans of a window.
#[derive(Debug)]
pub(crate) struct Placements<'a> {
    trace: &'a Trace,
    /// By step.
    steps: Vec<StepIds>,
    /// For everything outside the steps.
    no_step: StepIds,
    /// By span; `None` if the trace of its step is not sent.
    spans: Vec<Option<Placement>>,
    /// Whether another layer sends any span of the window.
    has_foreign: bool,
    /// Another layer's ids for spans that are kept and entered again: see [`kept`].
    kept: FxHashSet<u64>,
    /// Foreign traces that were active in a step, each represented by its outermost span.
    links: FxHashMap<Option<StepId>, Vec<(TraceId, SpanKey)>>,
}

impl<'a> Placements<'a> {
    /// The maximum number of foreign traces that a step is linked to.
    const MOST_LINKS: usize = 32;

    /// `has_no_step` says whether anything in the window is outside its steps, and so needs its own trace.
    pub(crate) fn new(trace: &'a Trace, run: &RunTrace, has_no_step: bool) -> Self {
        let step_ids = |number| StepIds { ids: run.step_ids(number), is_sent: run.step(number).is_some() };
        let window = trace.window();
        let mut placements = Self {
            trace,
            steps: trace.steps().iter().map(|step| step_ids(step.number())).collect(),
            no_step: StepIds { ids: run.window_ids(window), is_sent: has_no_step && run.window(window).is_some() },
            spans: vec![None; trace.spans().len()],
            has_foreign: trace.spans().any(|span| span.context().is_some()),
            kept: kept(trace),
            links: FxHashMap::default(),
        };
        let mut placed = vec![false; trace.spans().len()];
        for span in trace.spans() {
            // A caller is placed before the spans that work for it.
            let new: Vec<_> = callers(span).take_while(|span| !placed[span.id().index()]).collect();
            for span in new.into_iter().rev() {
                placed[span.id().index()] = true;
                placements.spans[span.id().index()] = match placements.context_of(span) {
                    Some(context) => Some(foreign(context, run)),
                    None => placements.place(span),
                };
            }
        }
        for span in trace.spans() {
            if placements.context_of(span).is_some()
                && let Some(Placement::Foreign(trace, key)) = placements.of(span)
            {
                placements.link(span, trace, key);
            }
        }
        placements
    }

    /// The placement of a span that no other layer sends: that of its caller, or else its step.
    fn place(&self, span: Span<'_>) -> Option<Placement> {
        let key = self.ids_of(span.step_id()).trace.span(IdKind::Span, span.id().index() as u64);
        let step = self.step_trace(span.step_id());
        match self.parent_of(span) {
            Some(Placement::Foreign(trace, _)) => Some(Placement::Foreign(trace, key)),
            Some(Placement::Unsampled) => Some(Placement::Unsampled),
            Some(Placement::Step(..)) | None => step.map(|step| Placement::Step(step, key)),
        }
    }

    /// Links the steps in which a span was open to its trace, unless a span that it works for is in that trace.
    fn link(&mut self, span: Span<'_>, trace: TraceId, key: SpanKey) {
        let mut around = callers(span).skip(1).map(|outer| self.spans[outer.id().index()]);
        if around.any(|outer| matches!(outer, Some(Placement::Foreign(of, _)) if of == trace)) {
            return;
        }
        let steps = self.trace.steps();
        let first = steps.partition_point(|step| step.end() <= span.start());
        let during = steps[first..].iter().take_while(|step| step.start() < span.end().max(span.start())).count();
        let open_in = self.trace.step_ids().skip(first).take(during).map(Some);
        let own = span.step_id();
        for step in open_in.chain((during == 0).then_some(own)) {
            let links = self.links.entry(step).or_default();
            if links.len() < Self::MOST_LINKS && links.iter().all(|(known, _)| *known != trace) {
                links.push((trace, key));
            }
        }
    }

    /// The context of a span that another layer sends.
    pub(crate) fn context_of(&self, span: Span<'_>) -> Option<TraceContext> {
        span.context().filter(|context| !self.kept.contains(&context.span_id))
    }

    /// Whether a span is assumed to be sent by another layer, although that could not be looked up.
    fn is_presumed_foreign(&self, span: Span<'_>) -> bool {
        self.has_foreign && !span.is_context_known()
    }

    /// The ids of a step, or of everything outside the steps.
    pub(crate) fn ids_of(&self, step: Option<StepId>) -> StepTrace {
        step.map_or(self.no_step, |step| self.steps[step.index()]).ids
    }

    /// The trace of a step, if it is sent.
    pub(crate) fn step_trace(&self, step: Option<StepId>) -> Option<StepTrace> {
        let step = step.map_or(self.no_step, |step| self.steps[step.index()]);
        step.is_sent.then_some(step.ids)
    }

    /// The foreign traces that were active in a step, each represented by its outermost span.
    pub(crate) fn links(&self, step: Option<StepId>) -> &[(TraceId, SpanKey)] {
        self.links.get(&step).map_or(&[], Vec::as_slice)
    }

    /// Whether another layer sends any span of the window.
    pub(crate) fn has_foreign(&self) -> bool {
        self.has_foreign
    }

    /// The placement of a span; `None` if the trace of its step is not sent.
    pub(crate) fn of(&self, span: Span<'_>) -> Option<Placement> {
        self.spans[span.id().index()]
    }

    /// The id and the parent that a span is sent with; `None` if it is not sent, or another layer sends it.
    pub(crate) fn sent(&self, span: Span<'_>) -> Option<(SpanKey, ParentSpan)> {
        if self.context_of(span).is_some() || self.is_presumed_foreign(span) {
            return None;
        }
        let key = match self.of(span)? {
            Placement::Step(_, key) | Placement::Foreign(_, key) => key,
            Placement::Unsampled => return None,
        };
        Some((key, self.under(self.parent_of(span), span.step_id())?))
    }

    /// The ids that a link to a span has; `None` if it is not sent.
    pub(crate) fn target(&self, span: Span<'_>) -> Option<(TraceId, SpanKey)> {
        match self.of(span)? {
            Placement::Step(step, key) => Some((step.trace, key)),
            Placement::Foreign(trace, key) => Some((trace, key)),
            Placement::Unsampled => None,
        }
    }

    /// The parent that a piece of work is sent with; `None` if it is not sent.
    pub(crate) fn sent_work(&self, work: Work<'_>) -> Option<ParentSpan> {
        self.under(self.owner_of(work).and_then(|span| self.of(span)), work.step_id())
    }

    /// The parent span of a piece of work.
    pub(crate) fn owner_of(&self, work: Work<'a>) -> Option<Span<'a>> {
        callers(work.span()?).find(|&span| !self.is_presumed_foreign(span))
    }

    fn parent_of(&self, span: Span<'_>) -> Option<Placement> {
        self.of(callers(span).skip(1).find(|&outer| !self.is_presumed_foreign(outer))?)
    }

    /// The parent of something in `step` whose owner has this placement.
    fn under(&self, owner: Option<Placement>, step: Option<StepId>) -> Option<ParentSpan> {
        let step = self.step_trace(step);
        match owner {
            Some(Placement::Foreign(trace, span)) => Some(ParentSpan { trace, span, other_step: None }),
            Some(Placement::Unsampled) => None,
            Some(Placement::Step(of, span)) if Some(of) == step => {
                Some(ParentSpan { trace: of.trace, span, other_step: None })
            }
            // The owner began in an earlier step, and is in that step's trace.
            Some(Placement::Step(of, key)) => {
                step.map(|step| ParentSpan { trace: step.trace, span: step.root, other_step: Some((of.trace, key)) })
            }
            None => step.map(|step| ParentSpan { trace: step.trace, span: step.root, other_step: None }),
        }
    }
}

/// A span, its caller, and so on.
fn callers(span: Span<'_>) -> impl Iterator<Item = Span<'_>> {
    std::iter::successors(Some(span), |span| span.caller())
}

/// Returns another layer's ids for spans that are called several times, each time inside another span: the layers of a
/// model, whose spans live as long as the model. That layer sends a span when it closes, and so does not send these, or
/// only once. They are sent like all others, below the spans around them.
fn kept(trace: &Trace) -> FxHashSet<u64> {
    let mut called = FxHashSet::default();
    let inside = trace.spans().filter(|span| span.previous().is_none() && span.parent().is_some());
    inside.filter_map(Span::context).map(|context| context.span_id).filter(|id| !called.insert(*id)).collect()
}

/// The placement of a span that another layer sends.
fn foreign(context: TraceContext, run: &RunTrace) -> Placement {
    let (trace, span) = (TraceId::foreign(context.trace_id), SpanKey::foreign(context.span_id));
    let is_sent = run.sends_under(Parent { trace, span, sampled: context.sampled });
    if is_sent { Placement::Foreign(trace, span) } else { Placement::Unsampled }
}
