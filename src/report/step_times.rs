//! The durations of steps.

use super::units;
use crate::trace::Step;
use std::{fmt, time::Duration};

/// The durations of the recorded steps, without steps that are cut by the edge of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct StepTimes {
    times: Vec<Duration>,
    /// The binary logarithm of the number of steps of which one is kept.
    #[cfg_attr(feature = "serde", serde(skip))]
    thinned: u32,
    /// The number of all steps.
    steps: u64,
    #[cfg_attr(feature = "serde", serde(skip))]
    sum: Duration,
}

impl StepTimes {
    /// The most durations that are kept one by one. Of more steps, every second is kept, or every fourth, and so on.
    pub const STEPS: usize = 1 << 17;

    /// Adds the steps of a window.
    pub(super) fn add(&mut self, steps: &[Step]) {
        steps.iter().filter(|step| !step.cut().any()).for_each(|step| self.add_time(step.duration()));
    }

    fn add_time(&mut self, time: Duration) {
        if self.times.len() == Self::STEPS {
            let mut index = 0;
            self.times.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.thinned += 1;
        }
        if self.steps.trailing_zeros() >= self.thinned {
            self.times.push(time);
        }
        self.steps += 1;
        self.sum += time;
    }

    /// Returns the duration of each step, in the order of the steps. If there are more than [`Self::STEPS`], it is that
    /// of every second step, or of every fourth, and so on.
    pub fn times(&self) -> &[Duration] {
        &self.times
    }

    /// Returns the number of steps.
    pub fn count(&self) -> u64 {
        self.steps
    }

    /// Returns whether no whole step was recorded.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Returns the mean duration, or `None` if there are no steps.
    pub fn mean(&self) -> Option<Duration> {
        let nanos = self.sum.as_nanos().checked_div(self.steps.into())?;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Returns a percentile of the durations in [`times`](Self::times) by the nearest-rank method, or `None` if there
    /// are no steps.
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
        let steps = self.steps;
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
        let mut steps = StepTimes::default();
        (1..=10).rev().map(Duration::from_millis).for_each(|time| steps.add_time(time));
        let millis = |percent| steps.percentile(percent).map(|time| time.as_millis());
        assert_eq!([millis(0.0), millis(50.0), millis(51.0), millis(100.0)], [Some(1), Some(5), Some(6), Some(10)]);
        assert_eq!(StepTimes::default().percentile(50.0), None);
    }

    #[test]
    fn of_very_many_steps_some_are_kept_evenly() {
        const STEPS: u64 = 5 * StepTimes::STEPS as u64 + 3;
        let mut steps = StepTimes::default();
        (0..STEPS).map(Duration::from_nanos).for_each(|time| steps.add_time(time));
        assert!((StepTimes::STEPS / 2..=StepTimes::STEPS).contains(&steps.times().len()));
        assert!(steps.times().iter().enumerate().all(|(index, time)| time.as_nanos() == 8 * index as u128));
        assert_eq!((steps.count(), steps.mean()), (STEPS, Some(Duration::from_nanos((STEPS - 1) / 2))));
    }
}
