//! Whether steps can be drawn on the rows of their threads.

use crate::{
    gallop_search::GallopSearch,
    trace::{Step, Timestamp, Trace},
};

/// Whether every step nests with the spans and calls of its thread. It does not if `step()` is called inside a span.
pub(super) fn steps_nest(trace: &Trace) -> bool {
    let steps = trace.steps();
    let mut near = GallopSearch::default();
    let mut within = |at: Timestamp| {
        let after = near.count_before(steps, |step| step.start() < at);
        after.checked_sub(1).map(|place| &steps[place]).filter(|step| at < step.end())
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
            !within(start).is_some_and(crosses) && !within(end).is_some_and(crosses)
        })
}
