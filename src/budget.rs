//! The memory limit that all windows of a profiler share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the bytes that windows hold until they have been exported: their records, steps and strings, and the trace
/// built from them. Records are accounted for together with their trace, since both are in memory while it is built.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: usize,
    held: AtomicUsize,
}

impl Budget {
    /// The fraction of the limit by which windows and steps may exceed it. A window full of spans still has room for
    /// its steps, and the next window can open while it is exported.
    const WINDOWS_SHARE: usize = 16;

    pub(crate) fn new(bytes: usize) -> Self {
        Self { limit: bytes, held: AtomicUsize::new(0) }
    }

    /// The fraction of the limit that events, operations and calls leave to spans. Outer spans get more of it than
    /// inner ones, so a flood of inner records does not displace the outer spans, which give the times of steps.
    const OUTER_SHARE: usize = 8;

    /// Whether a span nested in `depth` others has no memory left. Each level leaves half of the remainder to the
    /// levels around it: of 256 MiB, a span nested in one other leaves 16 MiB, and one nested in two leaves 24 MiB.
    pub(crate) fn is_spent_at(&self, depth: usize) -> bool {
        let share = self.limit / Self::OUTER_SHARE;
        let kept = share - share.checked_shr(u32::try_from(depth).unwrap_or(u32::MAX)).unwrap_or(0);
        self.held.load(Ordering::Relaxed) >= self.limit - kept
    }

    /// Reserves bytes. The last ones may exceed the limit.
    pub(crate) fn take(&self, bytes: usize) {
        self.held.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reserves the bytes of a window or a step. Returns false, and reserves nothing, if they do not fit.
    pub(crate) fn take_for_window(&self, bytes: usize) -> bool {
        let fits = self.held.load(Ordering::Relaxed) < self.limit + self.limit / Self::WINDOWS_SHARE;
        if fits {
            self.take(bytes);
        }
        fits
    }

    /// The bytes that are reserved, as parts of the limit.
    pub(crate) fn share(&self) -> f64 {
        self.held.load(Ordering::Relaxed) as f64 / self.limit as f64
    }

    /// Releases reserved bytes.
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
        assert!(budget.is_spent_at(0));
        assert!(budget.take_for_window(100));
        assert!(!budget.take_for_window(1));
        budget.give_back(101);
        assert!(!budget.is_spent_at(0));
        budget.give_back(1599);
        assert!(!budget.is_spent_at(0));
    }

    #[test]
    fn each_level_of_spans_leaves_room_for_those_around_it() {
        let budget = Budget::new(1600);
        let spent = |held: usize| {
            budget.take(held);
            let spent = [0, 1, 2, 3, usize::MAX].map(|depth| budget.is_spent_at(depth));
            budget.give_back(held);
            spent
        };
        assert_eq!(spent(1399), [false; 5]);
        assert_eq!(spent(1400), [false, false, false, false, true]);
        assert_eq!(spent(1450), [false, false, true, true, true]);
        assert_eq!(spent(1500), [false, true, true, true, true]);
        assert_eq!(spent(1600), [true; 5]);
    }
}
