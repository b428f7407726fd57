//! Values with confidence intervals, and the arithmetic of the two sides of a comparison.

use serde::Serialize;

/// A value and its 99 % confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

/// The largest error of a logarithm: a factor of e^50, or 5 · 10^21, is as good as infinite, and its products with
/// times are still finite.
const MOST_LOG_ERROR: f64 = 50.0;

impl Estimate {
    /// Returns the larger of the distances from the value to the ends of the interval.
    pub fn error(&self) -> f64 {
        (self.value - self.low).max(self.high - self.value).max(0.0)
    }

    /// Returns whether 0 is outside the interval, so that a change is not noise.
    pub fn is_sure(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// Returns the same in another unit.
    pub(super) fn times(self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Returns a positive value with an interval that is symmetric in logarithms, so that it never goes below 0. An
    /// absurdly wide one stays finite.
    pub(super) fn around(value: f64, log_error: f64) -> Self {
        let log_error = log_error.min(MOST_LOG_ERROR);
        Self { value, low: value * (-log_error).exp(), high: value * log_error.exp() }
    }
}

/// The centers of both sides of a comparison, and the error of the logarithm of each.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sides {
    /// The centers, before and after.
    pub(super) centers: [f64; 2],
    /// Half the width of the 99 % interval of each logarithm.
    pub(super) log_errors: [f64; 2],
    /// Whether each run of one side takes longer than each of the other, and there are enough.
    pub(super) are_apart: bool,
    /// The degrees of freedom of the intervals.
    pub(super) freedom: usize,
    pub(super) noise: Noise,
}

/// How much spans that have not changed differ between the sides, as relative standard deviations. Unknown, and 0,
/// without the drift.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Noise {
    /// What runs of a side do not show: a different load slows down some spans more than others. It is 0 if the sides
    /// alternated.
    pub(super) spread: f64,
    /// What is expected from the runs of each side, for the median of the spans. A single span of few runs may show
    /// much less by accident.
    pub(super) error: f64,
}

impl Sides {
    /// Returns the error of the logarithm of the ratio of the sides.
    pub(super) fn log_error(&self) -> f64 {
        let error = |side: usize| if self.centers[side] > 0.0 { self.log_errors[side] } else { 0.0 };
        error(0).hypot(error(1)).min(MOST_LOG_ERROR)
    }

    /// Returns the ratio of the sides, if there is time on both.
    pub(super) fn ratio(&self) -> Option<Estimate> {
        let [before, after] = self.centers;
        (before > 0.0 && after > 0.0).then(|| Estimate::around(after / before, self.log_error()))
    }

    /// Returns the difference of the sides. Its interval comes from that of the ratio: no time can shrink by more than
    /// it was.
    pub(super) fn change(&self) -> Estimate {
        let [before, after] = self.centers;
        match self.ratio() {
            Some(Estimate { low, high, .. }) => {
                Estimate { value: after - before, low: before * (low - 1.0), high: before * (high - 1.0) }
            }
            None if after > 0.0 => Estimate::around(after, self.log_error()),
            None => Estimate { value: 0.0 - before, low: 0.0 - before, high: 0.0 - before * (-self.log_error()).exp() },
        }
    }

    /// Returns whether the sides are likely to differ, although their 99 % interval may contain 0: the runs of one side
    /// are apart from those of the other, by more than the noise of spans or, if that is not known, with 0 outside of
    /// the 95 % interval.
    pub(super) fn are_likely_apart(&self) -> bool {
        let [before, after] = self.centers;
        let noise = match self.noise.error {
            0.0 => self.log_error() * student_95(self.freedom) / student(self.freedom),
            error => (DEVIATIONS * error).hypot(self.noise.spread),
        };
        self.are_apart && before > 0.0 && after > 0.0 && (after / before).ln().abs() > noise
    }
}

/// The standard errors that a difference must exceed if the runs are also apart: rare by chance, as in
/// [`Factors`](super::drift::Factors).
const DEVIATIONS: f64 = 3.0;

/// Returns how many standard deviations a 99 % interval extends to each side, by Student's distribution with this many
/// degrees of freedom. With none, it uses the normal distribution, since the spread is then assumed.
pub(super) fn student(freedom: usize) -> f64 {
    // Quantiles of 99.5 % for 0 to 10 degrees of freedom. One degree uses the value for two: an interval of 64 standard
    // deviations is useless.
    const TIMES: [f64; 11] = [2.58, 9.92, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17];
    // Within 0.03 of the quantiles for more: 2.58 is that of the normal distribution, which they approach.
    TIMES.get(freedom).copied().unwrap_or(2.58 + 5.9 / freedom as f64)
}

/// As [`student`], for a 95 % interval and from four degrees of freedom on. It is up to 0.07 too large.
fn student_95(freedom: usize) -> f64 {
    1.96 + 3.3 / freedom.max(1) as f64
}
