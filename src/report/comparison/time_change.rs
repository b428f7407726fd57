//! Changes of times.

use super::estimate::{Estimate, Sample};
use std::fmt;

/// A time of a step before and after, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct TimeChange {
    /// The time before: the median over steps, and of that the mean over the middle half of the runs.
    pub before: Estimate,
    /// The time after.
    pub after: Estimate,
    /// The difference, without the [drift](super::Drift) that all spans have in common.
    pub change: Estimate,
    /// The runs of the side that has fewer.
    runs: u64,
    /// The steps of the side that has fewer.
    steps: u64,
    /// Whether runs differ by more than their steps explain, so that more steps would not help.
    needs_runs: bool,
}

/// The answer to the question whether a time has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome {
    /// It is the same, within the threshold.
    Same,
    /// It is shorter.
    Better,
    /// It is longer.
    Worse,
    /// The interval is too wide.
    CannotTell(MoreData),
    /// The machines differ.
    NotCompared,
}

/// The data that would be needed to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum MoreData {
    /// About this many more steps on each side.
    Steps(u64),
    /// About this many more runs on each side.
    Runs(u64),
}

impl TimeChange {
    /// The number of steps from which on a median says something.
    const ENOUGH: u64 = 5;

    /// Returns the change between two sides. `scaled` has the same without the drift, and `spread` is the relative
    /// standard deviation of that.
    pub(super) fn new([before, after]: [&Sample; 2], scaled: [&Sample; 2], spread: f64) -> Self {
        let of = |sample: &Sample| {
            let (between, within) = sample.spread();
            (sample.runs(), sample.steps(), between > 2.0 * within)
        };
        let sides = scaled.map(of);
        Self {
            before: before.estimate(),
            after: after.estimate(),
            change: Sample::change(scaled[0], scaled[1], spread),
            runs: sides.iter().map(|side| side.0).min().unwrap_or(0) as u64,
            steps: sides.iter().map(|side| side.1).min().unwrap_or(0) as u64,
            needs_runs: sides.iter().any(|side| side.2),
        }
    }

    /// Returns the change of a step, of which these are the parts. `sides` are the durations.
    pub(super) fn of_parts<'a>(sides: [&Sample; 2], parts: impl Iterator<Item = &'a Self>) -> Self {
        let (mut value, mut below, mut above) = (0.0, 0.0, 0.0);
        for Estimate { value: part, low, high } in parts.map(|part| part.change) {
            value += part;
            below += (part - low).powi(2);
            above += (high - part).powi(2);
        }
        let change = Estimate { value, low: value - f64::sqrt(below), high: value + f64::sqrt(above) };
        Self { change, ..Self::new(sides, sides, 0.0) }
    }

    /// Returns whether the time has changed by more than `threshold` nanoseconds.
    ///
    /// It is the same if all of the interval is within the threshold, and changed if all of it is beyond.
    pub fn outcome(&self, threshold: f64) -> Outcome {
        let Estimate { value, low, high } = self.change;
        match () {
            () if self.steps < Self::ENOUGH => Outcome::CannotTell(MoreData::Steps(Self::ENOUGH - self.steps)),
            () if low > threshold => Outcome::Worse,
            () if high < -threshold => Outcome::Better,
            () if low >= -threshold && high <= threshold => Outcome::Same,
            () => Outcome::CannotTell(self.more_data((value.abs() - threshold).abs())),
        }
    }

    /// Returns the data that is needed for an interval with this distance to its ends.
    fn more_data(&self, distance: f64) -> MoreData {
        // An interval gets narrower with the square root of the data.
        let times = (self.change.error() / distance.max(self.change.error() / 10.0)).powi(2);
        let more = |count: u64| ((count.max(1) as f64 * (times - 1.0)).ceil() as u64).max(1);
        match self.needs_runs {
            // With very few runs, most of the interval is that these are so few.
            true => MoreData::Runs(more(self.runs).max(5_u64.saturating_sub(self.runs))),
            false => MoreData::Steps(more(self.steps)),
        }
    }

    /// Returns whether the time is 0 on both sides.
    pub fn is_nothing(&self) -> bool {
        self.before.high == 0.0 && self.after.high == 0.0 && self.change.value == 0.0
    }
}

impl fmt::Display for MoreData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Steps(1) => f.write_str("1 more step"),
            Self::Steps(steps) => write!(f, "{steps} more steps"),
            Self::Runs(1) => f.write_str("1 more run"),
            Self::Runs(runs) => write!(f, "{runs} more runs"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same => f.pad("same"),
            Self::Better => f.pad("better"),
            Self::Worse => f.pad("worse"),
            Self::CannotTell(data) => write!(f, "cannot tell: needs {data} on each side"),
            Self::NotCompared => f.pad("not compared"),
        }
    }
}
