//! Checks of the recorded windows.

use kernspan::{Trace, trace::Span};
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
