//! Tasks: pieces of GPU work.

use crate::trace::{Timestamp, WorkId};

/// A piece of GPU work in a simulation.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Task {
    pub(in crate::analysis) work: WorkId,
    pub(in crate::analysis) kind: TaskKind,
    pub(in crate::analysis) start: Timestamp,
    pub(in crate::analysis) end: Timestamp,
    /// When the host asked for it; its start if that is not known.
    pub(in crate::analysis) asked: Timestamp,
    /// The item of the call that asked for it.
    pub(in crate::analysis) item: Option<usize>,
    /// The task before it in its stream.
    pub(super) previous: Option<Previous>,
    /// The task of another stream that it seems to wait for.
    pub(super) dependency: Option<Previous>,
    /// The nanoseconds from its call to its start, at the least, and typically.
    pub(super) launch: (i64, i64),
    /// The least nanoseconds from its call to its start, if it waited for work from before the window.
    pub(super) waited_before: Option<i64>,
    /// The reason for which it did not begin earlier.
    pub(super) reason: Reason,
    /// Whether it was asked for in the steps that are looked at.
    pub(super) measured: bool,
}

/// The last thing that a task waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its call.
    #[default]
    Call,
    /// The task before it in its stream.
    Previous,
    /// A task of another stream.
    Dependency,
}

/// The kinds of tasks, which begin with different latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::analysis) enum TaskKind {
    Kernel,
    Copy,
    Fill,
    /// The first work of a graph.
    GraphStart,
    /// Other work of a graph.
    Graph,
}

impl TaskKind {
    /// The nanoseconds by which recording makes the time between two tasks longer. Measured with CUPTI 13.0 on an
    /// H200: see `benches/README.md`.
    pub(super) fn overhead(self) -> i64 {
        match self {
            Self::Kernel | Self::Graph => 170,
            Self::Copy | Self::Fill => 550,
            // CUPTI prepares the records of a graph before it runs.
            Self::GraphStart => 200_000,
        }
    }
}

/// A task that another follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Previous {
    pub(super) task: usize,
    /// The nanoseconds from its end to the start of the one that follows, at the least, and typically.
    pub(super) gap: (i64, i64),
}

impl Previous {
    pub(super) fn gap(self, typical: bool) -> i64 {
        if typical { self.gap.1 } else { self.gap.0 }
    }
}

impl Task {
    pub(super) fn launch(&self, typical: bool) -> i64 {
        if typical && self.waited_before.is_none() { self.launch.1 } else { self.launch.0 }
    }

    /// The moment at which all that its start depends on is known.
    pub(super) fn known(&self) -> Timestamp {
        self.start.max(self.asked)
    }
}
