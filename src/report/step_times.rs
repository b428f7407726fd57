//! The durations of steps.

use super::units;
use crate::trace::Step;
use std::{fmt, time::Duration};

/// The durations of the recorded steps, without steps that are cut by the edge of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StepTimes {
    times: Vec<Duration>,
}

impl StepTimes {
    /// Adds the steps of a window.
    pub(super) fn add(&mut self, steps: &[Step]) {
        self.times.extend(steps.iter().filter(|step| !step.cut().any()).map(Step::duration));
    }

    /// Returns the duration of each step, in the order of the steps.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Returns whether no whole step was recorded.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the mean duration, or `None` if there are no steps.
    pub fn mean(&self) -> Option<Duration> {
        let steps = u32::try_from(self.times.len()).ok().filter(|&steps| steps > 0)?;
        Some(self.times.iter().sum::<Duration>() / steps)
    }

    /// Returns a percentile of the durations by the nearest-rank method, or `None` if there are no steps.
    ///
    /// This is a duration that a step really had, and `percent` of the steps took no longer.
    ///
    /// # Panics
    ///
    /// If `percent` is not between 0 and 100.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        assert!((0.0..=100.0).contains(&percent), "{percent} is not a percentage");
        let mut sorted = self.times.clone();
        sorted.sort_unstable();
        let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

impl fmt::Display for StepTimes {
    /// Writes `6 steps of 3.120ms (median 3.002ms, 99 % within 3.871ms)`, or nothing if there are no steps.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(mean), Some(median), Some(most)) = (self.mean(), self.percentile(50.0), self.percentile(99.0)) else {
            return Ok(());
        };
        let steps = self.times.len();
        write!(f, "{steps} step{} of {}", if steps == 1 { "" } else { "s" }, units::time(mean))?;
        write!(f, " (median {}, 99 % within {})", units::time(median), units::time(most))
    }
}

#[cfg(test)]
mod tests {
    use super::StepTimes;
    use std::time::Duration;

    #[test]
    fn percentiles_are_times_that_were_seen() {
        let steps = StepTimes { times: (1..=10).rev().map(Duration::from_millis).collect() };
        let millis = |percent| steps.percentile(percent).map(|time| time.as_millis());
        assert_eq!([millis(0.0), millis(50.0), millis(51.0), millis(100.0)], [Some(1), Some(5), Some(6), Some(10)]);
        assert_eq!(StepTimes::default().percentile(50.0), None);
    }
}
