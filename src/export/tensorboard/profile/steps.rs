use crate::trace::{Step, StepId, Timestamp, Trace};

/// The steps that XProf is told of, numbered as it numbers them: one after the other. Those that the window cut are not among them, unless there
/// are no others.
#[derive(Debug)]
pub(super) struct Steps {
    told: Vec<StepId>,
    groups: Vec<Option<i64>>,
}

impl Steps {
    pub(super) fn new(trace: &Trace) -> Self {
        let steps = trace.steps();
        let all_cut = steps.iter().all(|step| step.cut().any());
        let (mut told, mut groups) = (Vec::new(), Vec::new());
        for (place, step) in steps.iter().enumerate() {
            // XProf makes up a time for a step that took none.
            let tells = (all_cut || !step.cut().any()) && step.start() < step.end();
            groups.push(tells.then_some(told.len() as i64));
            told.extend(tells.then(|| StepId::new(place)));
        }
        Self { told, groups }
    }

    /// XProf's number of a step.
    pub(super) fn group(&self, step: StepId) -> Option<i64> {
        self.groups[step.index()]
    }

    /// A step by XProf's number.
    pub(super) fn get<'a>(&self, trace: &'a Trace, group: usize) -> &'a Step {
        &trace.steps()[self.told[group].index()]
    }

    pub(super) fn iter<'a>(&'a self, trace: &'a Trace) -> impl Iterator<Item = (i64, &'a Step)> {
        (0..).zip(self.told.iter().map(|id| &trace.steps()[id.index()]))
    }

    /// Each step from when it began, and the one before was over, to when all that was done in it was over on a device: `last` is when that
    /// was. XProf takes these for the steps' times.
    pub(super) fn tiles(&self, trace: &Trace, last: &[Timestamp]) -> Vec<(Timestamp, Timestamp)> {
        let mut before = trace.start();
        let tiles = self.told.iter().map(|id| {
            let step = &trace.steps()[id.index()];
            let (start, end) = (step.start().max(before), step.end().max(last[id.index()]));
            before = end.max(start);
            (start, before)
        });
        tiles.collect()
    }
}
