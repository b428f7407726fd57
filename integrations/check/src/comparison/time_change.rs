//! Changes in times.

use super::{
    drift::Factors,
    estimate::{Estimate, Sides},
    sample::Sample,
};
use serde::Serialize;
use std::fmt;

/// A time of a step before and after, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeChange {
    /// The time before: the interquartile mean over runs of the median over steps.
    pub before: Estimate,
    /// The time after, as measured.
    pub after: Estimate,
    /// The difference between `before` and [`Self::adjusted_after`].
    pub change: Estimate,
    /// Both sides, adjusted for the drift.
    #[serde(skip)]
    sides: Sides,
    /// The number of runs on the side with fewer.
    runs: u64,
    /// The number of steps on the side with fewer.
    steps: u64,
    /// Whether runs differ by more than their steps explain, so that more steps would not help.
    needs_runs: bool,
    /// Whether it is the time of a whole step.
    is_step: bool,
}

/// Whether a time has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
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

/// The data needed for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MoreData {
    /// About this many more steps on each side.
    Steps(u64),
    /// About this many more runs on each side.
    Runs(u64),
}

impl TimeChange {
    /// A step that takes this many times as long as before is worse, however wide its interval. With nothing changed,
    /// the median step of the training in benches/README.md took 34 ms on a quiet machine and 104 ms under a load of 5
    /// to 15 on two cores: a factor of 3. Five leaves room for more.
    const BEYOND_NOISE: f64 = 5.0;
    /// Runs differ by more than their steps explain if their spread is this many times what the steps predict. It only
    /// decides whether to ask for more runs or more steps.
    const MORE_THAN_STEPS: f64 = 2.0;
    /// The minimum number of runs to ask for. With two or three on a side, most of the width of an interval comes from
    /// their small number: see [`student`](super::estimate::student).
    const ENOUGH_RUNS: u64 = 5;
    /// The most by which an interval is asked to get narrower: ten times takes a hundred times the data, and nobody
    /// makes more runs than that.
    const NARROWER: f64 = 10.0;

    /// Returns the change between two sides. `scaled` has the same times divided by the factors of the drift.
    pub(super) fn new(raw: [&Sample; 2], scaled: [&Sample; 2], factors: &Factors) -> Self {
        let sides = Sample::compare(scaled[0], scaled[1], factors.spread);
        let [before, _] = sides.centers;
        // Times after are shown as they would have been on the machine before.
        let unit = if before > 0.0 { raw[0].center() / before } else { factors.before };
        Self::of(raw, scaled, sides.times(unit))
    }

    /// Returns the change in the durations of steps, with the drift.
    pub(super) fn of_steps(steps: [&Sample; 2]) -> Self {
        Self { is_step: true, ..Self::of(steps, steps, Sample::compare(steps[0], steps[1], 0.0)) }
    }

    fn of([before, after]: [&Sample; 2], scaled: [&Sample; 2], sides: Sides) -> Self {
        let of = |sample: &Sample| {
            let (between, within) = sample.spread();
            (sample.runs(), sample.steps(), between > Self::MORE_THAN_STEPS * within)
        };
        let samples = scaled.map(of);
        Self {
            before: before.estimate(),
            after: after.estimate(),
            change: sides.change(),
            sides,
            runs: samples.iter().map(|side| side.0).min().unwrap_or(0) as u64,
            steps: samples.iter().map(|side| side.1).min().unwrap_or(0) as u64,
            needs_runs: samples.iter().any(|side| side.2),
            is_step: false,
        }
    }

    /// Returns the change in a step based on that of its parts, which are adjusted for the drift.
    pub(super) fn adjusted_to<'a>(self, parts: impl Iterator<Item = &'a Self> + Clone) -> Self {
        let sum = Sides::sum(parts.map(|part| &part.sides));
        let [before, after] = sum.centers;
        if before <= 0.0 || after <= 0.0 {
            return self;
        }
        // Medians do not add up exactly.
        let sides = sum.times(self.before.value / before);
        Self { change: sides.change(), sides, ..self }
    }

    /// Returns the time after, as it would have been without the [drift](super::Drift) that all spans have in common.
    pub fn adjusted_after(&self) -> f64 {
        self.sides.centers[1]
    }

    /// Returns whether the time has changed by more than `threshold` nanoseconds.
    ///
    /// It is the same if the whole interval is within the threshold, and changed if all of it is beyond. A step
    /// measured to take five times as long as before is worse whatever the interval, even if all spans share that
    /// factor; one that takes a fifth of the time is better.
    pub fn outcome(&self, threshold: f64) -> Outcome {
        let Estimate { low, high, .. } = self.change;
        let (before, after) = (self.before.value, self.after.value);
        let is_beyond = |one: f64, other: f64| {
            self.is_step && other > 0.0 && one >= Self::BEYOND_NOISE * other && one - other > threshold
        };
        match () {
            () if low > threshold || is_beyond(after, before) => Outcome::Worse,
            () if high < -threshold || is_beyond(before, after) => Outcome::Better,
            () if low >= -threshold && high <= threshold && self.steps > 0 => Outcome::Same,
            () => Outcome::CannotTell(self.more_data(threshold)),
        }
    }

    /// Returns the data needed for an interval that does not contain the threshold.
    fn more_data(&self, threshold: f64) -> MoreData {
        const ENOUGH: u64 = Sample::ENOUGH as u64;
        if self.steps < ENOUGH {
            return MoreData::Steps(ENOUGH - self.steps);
        }
        let [before, after] = self.sides.centers;
        let limit = if after < before { before - threshold } else { before + threshold };
        let distance = if after > 0.0 && limit > 0.0 { (after / limit).ln().abs() } else { f64::INFINITY };
        // An interval gets narrower with the square root of the data.
        let error = self.sides.log_error();
        let times = (error / distance.max(error / Self::NARROWER)).powi(2);
        let more = |count: u64| ((count.max(1) as f64 * (times - 1.0)).ceil() as u64).max(1);
        match self.needs_runs || (2..4).contains(&self.runs) {
            true => MoreData::Runs(more(self.runs).max(Self::ENOUGH_RUNS.saturating_sub(self.runs))),
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
