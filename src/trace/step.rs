use super::{Cut, Timestamp, TrackId};
use std::time::Duration;

/// Names a [`Step`] of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(u32);

impl StepId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the step in [`Trace::steps`](crate::Trace::steps).
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One turn of the loop: what lies between two calls of [`step`](crate::Profiler::step).
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

    /// Whether the step began before the window or was not over when it closed.
    pub fn cut(&self) -> Cut {
        self.cut
    }
}
