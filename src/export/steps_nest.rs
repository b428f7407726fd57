//! Checks whether steps can be drawn on the rows of their threads.

use crate::{
    gallop_search::GallopSearch,
    trace::{Step, Timestamp, Trace},
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
