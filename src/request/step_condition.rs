//! Conditions on the duration of a step, and their text.

use crate::units;
use std::{fmt, str::FromStr, time::Duration};

/// A condition on the duration of a step.
///
/// It is written as `step_time > 2*median`, of the last 64 steps at most, or as `step_time > 50ms`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum StepCondition {
    /// The step takes longer than so many times the median of the steps before it.
    TimesMedian(f64),
    /// The step takes longer than this.
    Longer(Duration),
}

impl StepCondition {
    /// Returns whether a step of this duration meets the condition, after steps with this median, if there were enough.
    pub(crate) fn is_met(self, step: Duration, median: Option<Duration>) -> bool {
        match self {
            Self::TimesMedian(times) => median.is_some_and(|median| step.as_secs_f64() > median.as_secs_f64() * times),
            Self::Longer(limit) => step > limit,
        }
    }
}

impl FromStr for StepCondition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem = || format!("`{text}` is not a condition: write `step_time > 2*median` or `step_time > 50ms`");
        let (left, right) = text.split_once('>').ok_or_else(problem)?;
        if left.trim() != "step_time" {
            return Err(problem());
        }
        let right = right.trim();
        let times = right.strip_suffix("median").map(|times| times.trim().trim_end_matches('*').trim_end());
        match times {
            Some("") => Ok(Self::TimesMedian(1.0)),
            Some(times) => match times.parse() {
                Ok(times) if f64::is_finite(times) && times > 0.0 => Ok(Self::TimesMedian(times)),
                _ => Err(problem()),
            },
            None => units::parse_duration(right).map(Self::Longer).ok_or_else(problem),
        }
    }
}

impl fmt::Display for StepCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimesMedian(times) => write!(f, "step_time > {times}*median"),
            Self::Longer(limit) => write!(f, "step_time > {limit:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StepCondition;
    use std::time::Duration;

    #[test]
    fn conditions_are_read_as_they_are_written() {
        let read = |text: &str| text.parse::<StepCondition>();
        assert_eq!(read("step_time > 2*median"), Ok(StepCondition::TimesMedian(2.0)));
        assert_eq!(read("step_time>1.5 * median"), Ok(StepCondition::TimesMedian(1.5)));
        assert_eq!(read("step_time > median"), Ok(StepCondition::TimesMedian(1.0)));
        assert_eq!(read("step_time > 50ms"), Ok(StepCondition::Longer(Duration::from_millis(50))));
        for condition in [StepCondition::TimesMedian(2.5), StepCondition::Longer(Duration::from_millis(1500))] {
            assert_eq!(read(&condition.to_string()), Ok(condition));
        }
        for wrong in ["", "loss > 2", "step_time < 2*median", "step_time > -1*median", "step_time > 5 parsecs"] {
            assert!(read(wrong).unwrap_err().contains("step_time > 2*median"), "{wrong}");
        }
    }
}
