//! Checks of the recorded windows.

use kernspan::{Activity, Trace, trace::Span};
use std::collections::HashMap;

/// The result of checking the windows.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) windows: u64,
    pub(crate) work: usize,
    pub(crate) wrong: Vec<String>,
}

/// Describes a window whose total is wrong.
pub(crate) fn wrong_total(trace: &Trace, expected: u64) -> Option<String> {
    let work = trace.work().len() as u64;
    (work != expected).then(|| format!("{work} kernels, copies and fills, not {expected}"))
}

/// Describes what is wrong with the hardware counters of a window, if they are among the activities.
pub(crate) fn wrong_counters(trace: &Trace, activities: &[Activity]) -> Option<String> {
    if !activities.contains(&Activity::Counters) {
        return None;
    }
    let Some(counters) = trace.gpu_counters().first() else { return Some("no counters".to_owned()) };
    let (samples, lost) = (counters.samples().len() as u128, counters.lost());
    // Sampling begins up to 2 ms after the window, with a sample that is dropped.
    let least = (trace.duration().as_nanos() / counters.interval().as_nanos().max(1)).saturating_sub(5);
    let is_wrong = samples < least || lost > 0 || counters.problem().is_some();
    is_wrong.then(|| format!("{samples} samples of at least {least}, {lost} lost, {:?}", counters.problem()))
}

/// Describes a step, on any thread, that does not contain exactly the work that was launched in it.
pub(crate) fn wrong_step(trace: &Trace, active: u64, per_step: u64) -> Option<String> {
    let steps = trace.spans().filter(|span| span.name() == "soak_step");
    let mut work_of: HashMap<_, u64> = steps.filter(|span| !span.cut().any()).map(|span| (span.id(), 0)).collect();
    if (work_of.len() as u64) < active {
        return Some(format!("{} complete steps, not {active}", work_of.len()));
    }
    for work in trace.work() {
        for span in work.span().into_iter().flat_map(Span::stack) {
            if let Some(count) = work_of.get_mut(&span.id()) {
                *count += 1;
            }
        }
    }
    let wrong = work_of.values().find(|count| **count != per_step)?;
    Some(format!("a step of {wrong} kernels, copies and fills, not {per_step}"))
}
