//! Items: stretches of a thread's time.

use super::{Times, nanos};
use crate::trace::{ApiCallId, SpanId, StepId, ThreadId, Timestamp};

/// A stretch of a thread's time: a call of the GPU's API, or time between calls in one innermost span.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Item {
    pub(in crate::analysis) thread: ThreadId,
    pub(in crate::analysis) start: Timestamp,
    pub(in crate::analysis) end: Timestamp,
    /// The call, if it is one. Calls inside it are not items of their own.
    pub(in crate::analysis) call: Option<ApiCallId>,
    /// The innermost span on the thread; the one that a call belongs to if it was made for another thread.
    pub(in crate::analysis) span: Option<SpanId>,
    /// The step in which it lies.
    pub(in crate::analysis) step: Option<StepId>,
    /// How many spans begin at its end or have ended at its start, which takes time if they are recorded.
    pub(super) edges: u8,
    /// The end of a task or call that it waited for.
    pub(super) wait: Option<WaitFor>,
    /// Whether it waited for work from before the window.
    pub(super) waited_before: bool,
}

impl Item {
    /// The time that a call needs if it has nothing to wait for.
    pub(super) const CALL: u64 = 2_000;

    pub(in crate::analysis) fn nanos(&self) -> u64 {
        nanos(self.start, self.end)
    }

    /// Whether it waited for something, so that its time is not its own.
    pub(in crate::analysis) fn waited(&self) -> bool {
        self.wait.is_some()
    }

    /// The nanoseconds that it takes without waiting.
    pub(in crate::analysis) fn own_nanos(&self) -> u64 {
        if self.waited() { self.nanos().min(Self::CALL) } else { self.nanos() }
    }
}

/// The end of something that an item waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitFor {
    pub(super) on: WaitsOn,
    /// The nanoseconds from that until the item ended.
    pub(super) tail: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WaitsOn {
    /// A task begins.
    TaskStart(usize),
    /// A task ends.
    TaskEnd(usize),
    /// An item of another thread ends.
    Item(usize),
}

impl WaitFor {
    /// The nanoseconds by which recording makes the end of a wait for the GPU later, at the most by half. Measured with
    /// CUPTI 13.0 on an H200: see `benches/README.md`.
    const OVERHEAD: i64 = 7_000;

    /// Returns when that ends which is waited for, at these times of items and tasks.
    pub(super) fn end(self, items: &[Times], tasks: &[Times]) -> i64 {
        match self.on {
            WaitsOn::TaskStart(task) => tasks[task].start,
            WaitsOn::TaskEnd(task) => tasks[task].end,
            WaitsOn::Item(item) => items[item].end,
        }
    }

    /// The tail without the cost of recording.
    pub(super) fn own_tail(self) -> i64 {
        match self.on {
            WaitsOn::TaskEnd(_) => (self.tail / 2).max(self.tail - Self::OVERHEAD),
            WaitsOn::TaskStart(_) | WaitsOn::Item(_) => self.tail,
        }
    }
}
