//! Steps as XProf numbers them.

use crate::trace::{Step, StepId, Timestamp, Trace};

/// The steps of a profile, numbered one after the other as XProf does. Steps that the window cut are left out, unless
/// there are no others.
#[derive(Debug)]
pub(super) struct Steps {
    shown: Vec<StepId>,
    /// XProf's number of each step of the trace.
    groups: Vec<Option<i64>>,
}

impl Steps {
    pub(super) fn new(trace: &Trace) -> Self {
        let steps = trace.steps();
        let all_cut = steps.iter().all(|step| step.cut().any());
        let (mut shown, mut groups) = (Vec::new(), Vec::new());
        for (place, step) in steps.iter().enumerate() {
            // XProf would make up a time for a step that took none.
            let is_shown = (all_cut || !step.cut().any()) && step.start() < step.end();
            groups.push(is_shown.then_some(shown.len() as i64));
            shown.extend(is_shown.then(|| StepId::new(place)));
        }
        Self { shown, groups }
    }

    /// XProf's number of a step, if it is shown.
    pub(super) fn group(&self, step: StepId) -> Option<i64> {
        self.groups[step.index()]
    }

    /// The step of this number of XProf's.
    pub(super) fn get<'a>(&self, trace: &'a Trace, group: usize) -> &'a Step {
        &trace.steps()[self.shown[group].index()]
    }

    pub(super) fn iter<'a>(&'a self, trace: &'a Trace) -> impl Iterator<Item = (i64, &'a Step)> {
        (0..).zip(self.shown.iter().map(|id| &trace.steps()[id.index()]))
    }

    /// The times of the steps on a device. A step begins when it began on the host and the step before is over. It ends
    /// when its last work is over on the device, which `last` says for each step of the trace.
    pub(super) fn tiles(&self, trace: &Trace, last: &[Timestamp]) -> Vec<(Timestamp, Timestamp)> {
        let mut before = trace.start();
        let tiles = self.shown.iter().map(|id| {
            let step = &trace.steps()[id.index()];
            let (start, end) = (step.start().max(before), step.end().max(last[id.index()]));
            before = end.max(start);
            (start, before)
        });
        tiles.collect()
    }
}
