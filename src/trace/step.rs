//! Steps: iterations of the training loop.

use super::{Cut, Timestamp, TrackId, id::define_id};
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
