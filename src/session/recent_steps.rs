//! The durations of recent steps, by which a slow one is found.

use crate::clock::{Clock, Ticks};
use std::time::Duration;

/// The durations of the last steps.
#[derive(Debug, Default)]
pub(super) struct RecentSteps {
    durations: Vec<u64>,
    /// The place of the next duration, once there are as many as are kept.
    next: usize,
    start: Option<Ticks>,
}

impl RecentSteps {
    /// The number of steps that the median is of.
    const KEPT: usize = 64;
    /// The fewest steps that have a median, the same as for a typical step that is not recorded.
    const ENOUGH: usize = 3;

    /// Ends a step. Returns its duration and the median of the steps before it, unless it is the first.
    pub(super) fn end_step(&mut self, clock: &Clock) -> Option<(Duration, Option<Duration>)> {
        let now = clock.now();
        let start = self.start.replace(now)?;
        let step = now.0.saturating_sub(start.0);
        let mut sorted = self.durations.clone();
        let middle = sorted.len() / 2;
        let median = (sorted.len() >= Self::ENOUGH).then(|| *sorted.select_nth_unstable(middle).1);
        if self.durations.len() < Self::KEPT {
            self.durations.push(step);
        } else {
            self.durations[self.next] = step;
            self.next = (self.next + 1) % Self::KEPT;
        }
        Some((clock.duration(step), median.map(|ticks| clock.duration(ticks))))
    }
}
