//! Steps as XProf numbers them.

use crate::{
    analysis::{Analysis, StepInterval},
    trace::{Step, StepId, Timestamp, Trace},
};

/// The steps of a profile, numbered consecutively as XProf does. Steps cut by the window are left out, unless there are
/// no others.
#[derive(Debug)]
pub(super) struct Steps {
    shown: Vec<StepId>,
    /// XProf's number for each step of the trace.
    groups: Vec<Option<i64>>,
    intervals: Vec<StepInterval>,
}

impl Steps {
    pub(super) fn new(window: &Analysis<'_>) -> Self {
        let steps = window.trace().steps();
        let all_cut = steps.iter().all(|step| step.cut().any());
        let (mut shown, mut groups) = (Vec::new(), Vec::new());
        for (index, step) in steps.iter().enumerate() {
            // XProf would make up a time for a step that took none.
            let is_shown = (all_cut || !step.cut().any()) && step.start() < step.end();
            groups.push(is_shown.then_some(shown.len() as i64));
            shown.extend(is_shown.then(|| StepId::new(index)));
        }
        Self { shown, groups, intervals: window.step_intervals().to_vec() }
    }

    /// Returns XProf's number for a step, if the step is shown.
    pub(super) fn group(&self, step: StepId) -> Option<i64> {
        self.groups[step.index()]
    }

    /// Returns the step with this XProf number.
    pub(super) fn get<'a>(&self, trace: &'a Trace, group: usize) -> &'a Step {
        &trace.steps()[self.shown[group].index()]
    }

    pub(super) fn iter<'a>(&'a self, trace: &'a Trace) -> impl Iterator<Item = (i64, &'a Step)> {
        (0..).zip(self.shown.iter().map(|id| &trace.steps()[id.index()]))
    }

    /// Returns when each step was worked on: its interval, or the time on the host if it is cut by the window.
    pub(super) fn times(&self, trace: &Trace) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        self.shown.iter().map(|id| {
            let step = &trace.steps()[id.index()];
            let whole = self.intervals.binary_search_by_key(id, |interval| interval.id);
            whole.map_or((step.start(), step.end()), |at| (self.intervals[at].start, self.intervals[at].end))
        })
    }
}
