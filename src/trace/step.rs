//! Steps: iterations of the training loop, and those of a trace.

use super::{Cut, Timestamp, Trace, TrackId, id::define_id};
use std::time::Duration;

define_id! {
    /// Names a [`Step`] of one trace.
    pub struct StepId;

    /// The index of the step in [`Trace::steps`](crate::Trace::steps).
    pub fn index;
}

/// One iteration of the training loop: the time between two calls to [`step`](crate::Profiler::step).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub(crate) number: u64,
    pub(crate) track: TrackId,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) cut: Cut,
}

impl Step {
    /// The step's number in the run, counted from 0, as in PyTorch's `ProfilerStep#N`.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The track of the thread that ended the step.
    pub fn track_id(&self) -> TrackId {
        self.track
    }

    /// When the step began.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When the step ended.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// How long the step took.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }

    /// The ends that lie outside the window.
    pub fn cut(&self) -> Cut {
        self.cut
    }
}

impl Trace {
    /// The duration of a step while nothing is recorded, if known: the mean of up to 15 steps before the window, or
    /// the value given to [`set_unrecorded_step`](Self::set_unrecorded_step).
    pub fn unrecorded_step(&self) -> Option<Duration> {
        self.unrecorded_step
    }

    /// Sets the duration of a step while nothing is recorded, as a progress bar shows it. Findings are about that step:
    /// the host is assumed to be faster or slower by the factor that explains it.
    ///
    /// PyTorch's profiler makes host-bound steps up to twice as long, and its files do not record by how much.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn show(mut trace: kernspan::Trace) {
    /// trace.set_unrecorded_step(Duration::from_micros(18_500));
    /// let findings = kernspan::analysis::Analysis::of(&trace).findings().to_vec();
    /// # }
    /// ```
    pub fn set_unrecorded_step(&mut self, time: Duration) {
        self.unrecorded_step = Some(time);
    }

    /// The steps, in chronological order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The ids of the steps, in the order of [`steps`](Self::steps).
    ///
    /// ```
    /// # use kernspan::Trace;
    /// /// The number of spans that began in each step.
    /// fn spans_by_step(trace: &Trace) -> Vec<(u64, usize)> {
    ///     let spans_in = |id| trace.spans().filter(|span| span.step_id() == Some(id)).count();
    ///     trace.step_ids().zip(trace.steps()).map(|(id, step)| (step.number(), spans_in(id))).collect()
    /// }
    /// ```
    pub fn step_ids(&self) -> impl ExactSizeIterator<Item = StepId> + use<> {
        (0..self.steps.len()).map(StepId::new)
    }

    /// The step that contains a moment.
    pub(crate) fn step_at(&self, at: Timestamp) -> Option<StepId> {
        let after = self.steps.partition_point(|step| step.start <= at);
        after.checked_sub(1).filter(|&step| at < self.steps[step].end).map(StepId::new)
    }
}
