//! The memory limit that all windows of a profiler share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of the bytes that windows take until they have been exported: their records, steps and texts, and the trace
/// that is made of them. The trace is charged together with the records, since both are in memory while it is made.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// The part of the limit by which windows and steps may exceed it. A window that is full of spans has room for the
    /// steps, too, and the next window can open while it is exported.
    const WINDOWS_SHARE: usize = 16;

    pub(crate) fn new(bytes: usize) -> Self {
        Self { limit: bytes, held: AtomicUsize::new(0) }
    }

    /// The part of the limit that is kept for spans that lie in at most one other. A flood of inner spans, events or
    /// operations then leaves the outer ones and so the times of steps: those of a thousand steps take 400 kB.
    const OUTER_SHARE: usize = 8;

    /// Whether the limit is reached.
    pub(crate) fn is_spent(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.limit
    }

    /// Whether the part of the limit is used up that inner spans, events, operations and calls may take.
    pub(crate) fn is_spent_inside(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.limit - self.limit / Self::OUTER_SHARE
    }

    /// Charges bytes. The last ones may exceed the limit.
    pub(crate) fn take(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Charges the bytes of a window or a step. Returns false, having charged nothing, if they do not fit.
    pub(crate) fn take_for_window(&self, bytes: usize) -> bool {
        let fits = self.held.load(Ordering::Relaxed) < self.limit + self.limit / Self::WINDOWS_SHARE;
        if fits {
            self.take(bytes);
        }
        fits
    }

    /// Returns bytes that were charged.
    pub(crate) fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn a_window_still_opens_when_records_have_taken_all() {
        let budget = Budget::new(1600);
        budget.take(1600);
        assert!(budget.is_spent());
        assert!(budget.take_for_window(100));
        assert!(!budget.take_for_window(1));
        budget.give_back(101);
        assert!(!budget.is_spent());
        budget.give_back(1599);
        assert!(!budget.is_spent());
    }
}
