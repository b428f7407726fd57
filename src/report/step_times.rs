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
    /// Writes `6 steps, 3.120ms on average (median 3.002ms, longest 3.871ms)`, or nothing if there are no steps. From a
    /// hundred steps on, it also writes the time that 99 % of them were within.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(mean) = self.mean() else { return Ok(()) };
        let time = |percent| units::time(self.percentile(percent).unwrap_or_default());
        match self.times.len() {
            1 => return write!(f, "1 step of {}", units::time(mean)),
            steps => write!(f, "{steps} steps, {} on average (median {}", units::time(mean), time(50.0))?,
        }
        if self.times.len() >= 100 {
            write!(f, ", 99 % within {}", time(99.0))?;
        }
        write!(f, ", longest {})", time(100.0))
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

    #[test]
    fn a_mean_is_called_one() {
        let text = |steps| StepTimes { times: (1..=steps).map(Duration::from_millis).collect() }.to_string();
        assert_eq!([text(0), text(1)], ["", "1 step of 1.000ms"]);
        assert_eq!(text(4), "4 steps, 2.500ms on average (median 2.000ms, longest 4.000ms)");
        assert_eq!(
            text(100),
            "100 steps, 50.500ms on average (median 50.000ms, 99 % within 99.000ms, longest 100.000ms)"
        );
    }
}
