//! Changes in times.

use super::{
    estimate::{Estimate, Noise, Sides, student},
    sample::Sample,
};
use serde::Serialize;
use std::{cmp::Ordering, fmt};

/// A time of a step before and after, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimeChange {
    /// The time before: the mean over runs of the mean over their typical steps, which are the middle half by duration.
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
    /// Whether more or less is done in this time, by counts.
    #[serde(skip)]
    work: Option<Ordering>,
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
    /// The factor from which a change of a span is large, when each run differs from each of the other side. Twice the
    /// work is; runs of an unchanged span on a machine whose load makes them differ by 15 % are in one of 2,000
    /// comparisons of three with three, and by 30 % in one of 40, of which fewer are apart (see `tests/noise.rs`).
    const LARGE: f64 = 1.5;
    /// As [`Self::LARGE`], for a step, which is one comparison instead of one for each span.
    const LARGE_OF_STEP: f64 = 1.25;
    /// Runs differ by more than their steps explain if their spread is this many times what the steps predict. It only
    /// decides whether to ask for more runs or more steps.
    const MORE_THAN_STEPS: f64 = 2.0;
    /// The minimum number of runs to ask for. With two or three on a side, most of the width of an interval comes from
    /// their small number: see [`student`](super::estimate::student).
    const ENOUGH_RUNS: u64 = 5;
    /// The most by which an interval is asked to get narrower: ten times takes a hundred times the data, and nobody
    /// makes more runs than that.
    const NARROWER: f64 = 10.0;

    /// Returns the change between two sides. `adjusted` has the same times without the drift, and `noise` is how much
    /// spans differ.
    pub(super) fn new([before, after]: [Sample; 2], adjusted: [Sample; 2], noise: Noise) -> Self {
        let of = |sample: &Sample| {
            let (between, within) = sample.spread();
            (sample.runs(), sample.steps(), between > Self::MORE_THAN_STEPS * within)
        };
        let samples = adjusted.each_ref().map(of);
        let sides = Sample::compare(&adjusted[0], &adjusted[1], noise);
        Self {
            before: before.estimate(),
            after: after.estimate(),
            change: sides.change(),
            sides,
            runs: samples.iter().map(|side| side.0).min().unwrap_or(0) as u64,
            steps: samples.iter().map(|side| side.1).min().unwrap_or(0) as u64,
            needs_runs: samples.iter().any(|side| side.2),
            is_step: false,
            work: None,
        }
    }

    /// Returns it as the time of a whole step.
    pub(super) fn of_step(self) -> Self {
        Self { is_step: true, ..self }
    }

    /// Returns it with whether more or less is done in this time, by counts.
    pub(super) fn with_work(self, work: Option<Ordering>) -> Self {
        Self { work, ..self }
    }

    /// Returns the time after, as it would have been without the [drift](super::Drift) that all spans have in common.
    pub fn adjusted_after(&self) -> f64 {
        (self.before.value + self.change.value).max(0.0)
    }

    /// Returns whether the time has changed by more than `threshold` nanoseconds.
    ///
    /// It has changed if the estimate is beyond the threshold and [certainly](Self::is_sure) not 0, and is the same if
    /// the whole interval is within the threshold.
    pub fn outcome(&self, threshold: f64) -> Outcome {
        let Estimate { value, low, high } = self.change;
        let (before, after) = (self.before.value, self.after.value);
        let is_changed = value.abs() > threshold && self.is_sure();
        let is_beyond = (after - before).abs() > threshold && self.is_beyond_noise();
        match () {
            () if (is_changed && value > 0.0) || (is_beyond && after > before) => Outcome::Worse,
            () if (is_changed && value < 0.0) || is_beyond => Outcome::Better,
            () if low >= -threshold && high <= threshold && self.steps > 0 => Outcome::Same,
            () => Outcome::CannotTell(self.more_data(threshold)),
        }
    }

    /// Returns whether the change is not noise: 0 is not in its 99 % interval. Where few runs make that wide, it is
    /// enough that 0 is not in the 95 % interval and that each of three or more runs takes longer than each one of the
    /// other side, if the change is also large, or if more was done, by counts.
    pub fn is_sure(&self) -> bool {
        self.change.is_sure() || self.is_apart()
    }

    /// Returns whether a change whose 99 % interval contains 0 is sure.
    pub(crate) fn is_apart(&self) -> bool {
        let [before, after] = self.sides.centers;
        let large = if self.is_step { Self::LARGE_OF_STEP } else { Self::LARGE };
        let is_large = after >= large * before || before >= large * after;
        !self.change.is_sure() && self.sides.are_likely_apart() && (is_large || self.work == after.partial_cmp(&before))
    }

    /// Returns whether a whole step takes so many times as long, or as short, that no noise explains it, even if all
    /// spans share that factor.
    pub(crate) fn is_beyond_noise(&self) -> bool {
        let (before, after) = (self.before.value, self.after.value);
        self.is_step && before > 0.0 && after > 0.0 && before.max(after) >= Self::BEYOND_NOISE * before.min(after)
    }

    /// Returns the data needed for an interval that contains neither 0, if the change is beyond the threshold, nor else
    /// the threshold.
    fn more_data(&self, threshold: f64) -> MoreData {
        const ENOUGH: u64 = Sample::ENOUGH as u64;
        if self.steps < ENOUGH {
            return MoreData::Steps(ENOUGH - self.steps);
        }
        let [before, after] = self.sides.centers;
        let limit = match after - before {
            change if change.abs() > threshold => before,
            change if change < 0.0 => before - threshold,
            _ => before + threshold,
        };
        let distance = if after > 0.0 && limit > 0.0 { (after / limit).ln().abs() } else { f64::INFINITY };
        let error = self.sides.log_error();
        let distance = distance.max(error / Self::NARROWER);
        // An interval gets narrower with the square root of the data.
        let steps = (self.steps as f64 * ((error / distance).powi(2) - 1.0)).ceil() as u64;
        match self.needs_runs || (2..4).contains(&self.runs) {
            true => MoreData::Runs(self.more_runs(error, distance).max(Self::ENOUGH_RUNS.saturating_sub(self.runs))),
            false => MoreData::Steps(steps.max(1)),
        }
    }

    /// Returns how many more runs a side needs for an error of its logarithm that is no more than `wanted`.
    fn more_runs(&self, error: f64, wanted: f64) -> u64 {
        let runs = self.runs.max(1);
        let width = |runs: u64| student(2 * runs.saturating_sub(1) as usize) / (runs as f64).sqrt();
        let most = (runs as f64 * Self::NARROWER.powi(2)) as u64;
        let is_enough = |more: &u64| error * width(runs + more) <= wanted * width(runs);
        (1..most).find(is_enough).unwrap_or(most)
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
