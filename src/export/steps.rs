//! Steps on the rows of their threads.

use crate::{
    gallop_search::GallopSearch,
    trace::{Span, Step, Timestamp, Trace},
};

/// Returns whether every step nests with the spans and calls of its thread. It does not if `step()` is called inside a
/// span.
pub(super) fn steps_nest(trace: &Trace) -> bool {
    let steps = trace.steps();
    let mut search = GallopSearch::default();
    let mut step_at = |at: Timestamp| {
        let after = search.count_before(steps, |step| step.start() < at);
        after.checked_sub(1).map(|index| &steps[index]).filter(|step| at < step.end())
    };
    let spans = trace.spans().map(|span| (span.track_id(), span.start(), span.end()));
    let calls = trace.api_calls().map(|call| (call.track_id(), call.start(), call.end()));
    steps.is_empty()
        || spans.chain(calls).all(|(track, start, end)| {
            let crosses = |step: &Step| {
                let nests =
                    (step.start() <= start && end <= step.end()) || (start <= step.start() && step.end() <= end);
                step.track_id() == track && !nests
            };
            !step_at(start).is_some_and(crosses) && !step_at(end).is_some_and(crosses)
        })
}

/// Returns the name of the step that a span of a PyTorch trace is, if it is one.
///
/// The spans of all steps share the name `ProfilerStep*`, so that reports add them up.
pub(super) fn step_name(trace: &Trace, span: Span<'_>) -> Option<String> {
    if trace.torch().is_none() || span.name() != "ProfilerStep*" {
        return None;
    }
    let steps = trace.steps();
    let first = steps.partition_point(|step| step.start() < span.start());
    let together = steps[first..].iter().take_while(|step| step.start() == span.start());
    let step = together.into_iter().find(|step| step.end() == span.end())?;
    Some(format!("ProfilerStep#{}", step.number()))
}
