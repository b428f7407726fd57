//! The cost of recording: how much longer recorded steps took.

use super::units;
use crate::analysis::quantile;
use std::{fmt, time::Duration};

/// The cost of recording: how long recorded steps took, and how long those of the same run took that were not recorded.
///
/// Warm-up steps, the first step of the run and steps that a window cut are in neither. Of a long run, a sample of some
/// hundred steps that were not recorded is kept, spread evenly over the run. Other things than recording can make a
/// difference, too, such as validation in some of the steps, so look at the quartiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RecordingCost {
    /// The steps that were not recorded.
    pub unrecorded: StepQuartiles,
    /// The recorded steps.
    pub recorded: StepQuartiles,
}

/// The median and the quartiles of the durations of steps on the host. Half of the steps took from `lower` to `upper`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepQuartiles {
    /// The number of steps.
    pub steps: u64,
    /// The duration that a quarter of the steps did not exceed.
    pub lower: Duration,
    /// The median.
    pub median: Duration,
    /// The duration that three quarters of the steps did not exceed.
    pub upper: Duration,
}

impl RecordingCost {
    /// Returns the cost, or `None` if there are too few steps of either kind.
    pub(crate) fn of(unrecorded: Vec<Duration>, recorded: Vec<Duration>) -> Option<Self> {
        Some(Self { unrecorded: StepQuartiles::of(unrecorded)?, recorded: StepQuartiles::of(recorded)? })
    }

    /// Returns the median of the recorded steps as a multiple of that of the others.
    pub fn factor(&self) -> f64 {
        self.recorded.median.as_secs_f64() / self.unrecorded.median.as_secs_f64()
    }

    /// Whether recorded steps took longer by more than their noise: the interval of 99 % of the factor is above 1.
    ///
    /// The interval is that of the logarithm of the ratio of two medians, whose standard errors come from the
    /// quartiles, by Student's distribution for the fewer steps.
    pub fn is_measurable(&self) -> bool {
        // 1.25 times the error of a mean, by the spread of a normal distribution with these quartiles.
        let error = |steps: &StepQuartiles| {
            let spread = (steps.upper.as_secs_f64() / steps.lower.as_secs_f64()).ln() / 1.35;
            1.25 * spread / (steps.steps as f64).sqrt()
        };
        let fewer = self.unrecorded.steps.min(self.recorded.steps) as usize;
        let error = error(&self.unrecorded).hypot(error(&self.recorded));
        self.factor().ln() > student(fewer.saturating_sub(1)) * error
    }
}

impl StepQuartiles {
    /// The fewest steps whose quartiles say something.
    const ENOUGH: usize = 5;

    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let time = |part| quantile(&times, part).filter(|time| !time.is_zero());
        let steps = Some(times.len()).filter(|&steps| steps >= Self::ENOUGH)? as u64;
        Some(Self { steps, lower: time(0.25)?, median: time(0.5)?, upper: time(0.75)? })
    }
}

/// Returns how many standard deviations an interval of 99 % has to each side, by Student's distribution with so many
/// degrees of freedom: at least four, as there are at least five steps.
fn student(freedom: usize) -> f64 {
    const FROM_FOUR: [f64; 7] = [4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17];
    let known = freedom.checked_sub(4).and_then(|index| FROM_FOUR.get(index));
    // Within 0.03 of the quantiles for more: 2.58 is that of the normal distribution, which they approach.
    known.copied().unwrap_or(2.58 + 5.9 / freedom as f64)
}

impl fmt::Display for RecordingCost {
    /// Writes `profiling overhead: 1.20 × (4.40 ms → 5.30 ms a step, quartiles 4.30 ms to 4.50 ms and 5.10 ms to
    /// 5.60 ms, 28 and 10 steps)`, or `profiling overhead: within noise (…)` if it is not
    /// [measurable](Self::is_measurable).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unrecorded, recorded } = self;
        let range = |steps: &StepQuartiles| format!("{} to {}", units::time(steps.lower), units::time(steps.upper));
        match self.is_measurable() {
            true => write!(f, "profiling overhead: {} ×", units::digits(self.factor()))?,
            false => f.write_str("profiling overhead: within noise")?,
        }
        write!(f, " ({} → {} a step", units::time(unrecorded.median), units::time(recorded.median))?;
        write!(f, ", quartiles {} and {}", range(unrecorded), range(recorded))?;
        write!(f, ", {} and {} steps)", unrecorded.steps, recorded.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordingCost;
    use std::time::Duration;

    fn millis(times: &[u64]) -> Vec<Duration> {
        times.iter().map(|&time| Duration::from_millis(time)).collect()
    }

    #[test]
    fn overhead_is_told_from_noise() {
        let (unrecorded, recorded) = (millis(&[10, 10, 10, 10, 10, 11, 90, 9]), millis(&[13, 12, 12, 14, 12, 12]));
        let cost = RecordingCost::of(unrecorded.clone(), recorded.clone()).unwrap();
        assert_eq!(
            cost.to_string(),
            "profiling overhead: 1.20 × (10.0 ms → 12.0 ms a step, quartiles 10.0 ms to 10.2 ms and 12.0 ms to \
             12.8 ms, 8 and 6 steps)"
        );
        let noisy = RecordingCost::of(millis(&[1, 2, 3, 9, 9]), millis(&[1, 4, 5, 6, 7])).unwrap();
        assert_eq!(
            noisy.to_string(),
            "profiling overhead: within noise (3.00 ms → 5.00 ms a step, quartiles 2.00 ms to 9.00 ms and 4.00 ms to \
             6.00 ms, 5 and 5 steps)"
        );
        // Steps are not shorter because they are recorded.
        let shorter = RecordingCost::of(millis(&[10; 20]), millis(&[8; 20])).unwrap();
        assert!(shorter.to_string().starts_with("profiling overhead: within noise (10.0 ms → 8.00 ms a step"));
        assert_eq!(RecordingCost::of(unrecorded, millis(&[1; 4])), None, "too few");
        assert_eq!(RecordingCost::of(millis(&[1; 4]), recorded.clone()), None, "too few");
        assert_eq!(RecordingCost::of(millis(&[0; 9]), recorded), None, "not measured");
    }
}
