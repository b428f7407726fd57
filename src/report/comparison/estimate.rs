//! Medians with confidence intervals.

use super::random::Random;

/// A value, and the interval in which it is with a confidence of 99 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Estimate {
    /// The value.
    pub value: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Returns the larger of the distances from the value to the ends of the interval.
    pub fn error(&self) -> f64 {
        (self.value - self.low).max(self.high - self.value).max(0.0)
    }

    /// Returns a value with an interval of as many standard deviations of the draws as Student's distribution says.
    ///
    /// The quantiles of the draws would not do: of a few runs, the most extreme draws are the most extreme run.
    fn of(value: f64, draws: &[f64], freedom: usize) -> Self {
        let count = draws.len().max(1) as f64;
        let mean = draws.iter().sum::<f64>() / count;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / count;
        let error = student(freedom) * variance.sqrt();
        Self { value, low: value - error, high: value + error }
    }
}

/// The times of one side of a comparison: those of the steps of each run.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The sorted times of the steps of each run, in the order of the runs' medians.
    runs: Vec<Vec<f64>>,
}

impl Sample {
    /// The number of resamples.
    const DRAWS: usize = 1000;
    /// The relative standard deviation that is assumed between runs, if there is only one.
    pub(super) const SINGLE_RUN: f64 = 0.05;

    pub(super) fn new(runs: impl IntoIterator<Item = Vec<f64>>) -> Self {
        let sorted = |mut times: Vec<f64>| {
            times.retain(|time| time.is_finite());
            times.sort_unstable_by(f64::total_cmp);
            times
        };
        let mut runs: Vec<_> = runs.into_iter().map(sorted).filter(|run| !run.is_empty()).collect();
        runs.sort_by(|a, b| a.iter().rev().map(|it| it.to_bits()).cmp(b.iter().rev().map(|it| it.to_bits())));
        runs.sort_by(|a, b| quantile(a, 0.5).total_cmp(&quantile(b, 0.5)));
        Self { runs }
    }

    /// Returns the number of runs with steps.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of steps of all runs.
    pub(super) fn steps(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Returns the mean of the middle half of the medians of the runs, 0 if there are none.
    pub(super) fn center(&self) -> f64 {
        let medians: Vec<_> = self.runs.iter().map(|run| quantile(run, 0.5)).collect();
        middle_mean(&medians)
    }

    /// Returns the standard deviation of the runs' medians, and of what is expected of them by their steps alone.
    pub(super) fn spread(&self) -> (f64, f64) {
        let medians: Vec<_> = self.runs.iter().map(|run| quantile(run, 0.5)).collect();
        let count = medians.len().max(1) as f64;
        let mean = medians.iter().sum::<f64>() / count;
        let squares = medians.iter().map(|median| (median - mean).powi(2)).sum::<f64>();
        let between = if medians.len() > 1 { (squares / (count - 1.0)).sqrt() } else { mean * Self::SINGLE_RUN };
        // The standard error of a median: 1.25 times that of the mean; the spread of steps by their quartiles.
        let of_steps = |run: &Vec<f64>| {
            let spread = (quantile(run, 0.75) - quantile(run, 0.25)) / 1.35;
            1.25 * spread / (run.len() as f64).sqrt()
        };
        (between, self.runs.iter().map(of_steps).sum::<f64>() / count)
    }

    /// Returns the center, with an interval of its own.
    pub(super) fn estimate(&self) -> Estimate {
        let center = self.center();
        Estimate::of(center, &self.draws(&mut Random::new(1)), self.runs.len().saturating_sub(1))
    }

    /// Returns the difference of the centers. `spread` is a relative standard deviation between both sides that the
    /// runs of each of them do not show.
    pub(super) fn change(before: &Self, after: &Self, spread: f64) -> Estimate {
        let is_assumed = before.runs.len().min(after.runs.len()) < 2;
        let freedom = if is_assumed { 0 } else { before.runs.len() + after.runs.len() - 2 };
        let (mut one, mut other) = (Random::new(1), Random::new(2));
        let (before_draws, after_draws) = (before.draws(&mut one), after.draws(&mut other));
        let mut sides = Random::new(3);
        let mut difference = |(before, after): (&f64, &f64)| after * (1.0 + spread * sides.normal()) - before;
        let draws: Vec<_> = before_draws.iter().zip(&after_draws).map(&mut difference).collect();
        Estimate::of(after.center() - before.center(), &draws, freedom)
    }

    /// Returns draws of the center, by resampling runs and, in each of them, steps.
    ///
    /// The median of resampled steps is drawn at once: its rank is close to normal, with the variance of a quarter of
    /// the number of steps. Resampling few runs gives too little variance, by a factor that is known.
    fn draws(&self, random: &mut Random) -> Vec<f64> {
        let (count, center) = (self.runs.len(), self.center());
        if count == 0 {
            return vec![0.0; Self::DRAWS];
        }
        let spread = match count {
            1 => 1.0,
            _ => (count as f64 / (count - 1) as f64).sqrt(),
        };
        let mut medians = vec![0.0; count];
        let mut draw = || {
            for median in &mut medians {
                let run = &self.runs[random.below(count)];
                let middle = (run.len() - 1) as f64 / 2.0;
                *median = at_rank(run, middle + random.normal() * (run.len() as f64).sqrt() / 2.0);
                if count == 1 {
                    *median *= 1.0 + Self::SINGLE_RUN * random.normal();
                }
            }
            medians.sort_unstable_by(f64::total_cmp);
            center + spread * (middle_mean(&medians) - center)
        };
        (0..Self::DRAWS).map(|_| draw()).collect()
    }
}

/// Returns how many standard deviations an interval of 99 % has to each side, by Student's distribution with so many
/// degrees of freedom; by the normal one if there are none, since the spread between runs is then assumed.
fn student(freedom: usize) -> f64 {
    // With two runs on one side alone, it is that of three: no interval of 64 standard deviations is of use.
    const TIMES: [f64; 11] = [2.58, 9.92, 9.92, 5.84, 4.60, 4.03, 3.71, 3.50, 3.36, 3.25, 3.17];
    TIMES.get(freedom).copied().unwrap_or(2.58 + 5.9 / freedom as f64)
}

/// Returns a quantile of sorted values, between the two that are nearest; 0 if there are none.
pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    at_rank(sorted, part * sorted.len().saturating_sub(1) as f64)
}

/// Returns the mean of the middle half of sorted values, of which those at its ends count in part; 0 if there are none.
///
/// It is as good as the median where a run is out of the ordinary, and better where none is.
fn middle_mean(sorted: &[f64]) -> f64 {
    let count = sorted.len() as f64;
    let (low, high) = (count / 4.0, count * 3.0 / 4.0);
    let weight = |index: usize| ((index as f64 + 1.0).min(high) - (index as f64).max(low)).max(0.0);
    let sum: f64 = sorted.iter().enumerate().map(|(index, value)| weight(index) * value).sum();
    if sorted.is_empty() { 0.0 } else { sum / (high - low) }
}

fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let rank = rank.clamp(0.0, last as f64);
    let (below, above) = (rank.floor() as usize, rank.ceil() as usize);
    let value = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    value(below) + (value(above) - value(below)) * rank.fract()
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Sample, middle_mean, quantile};

    fn runs(centers: &[f64]) -> Sample {
        Sample::new(centers.iter().map(|center| (0..40).map(|step| center + f64::from(step % 5) - 2.0).collect()))
    }

    #[test]
    fn quantiles_are_between_values() {
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| quantile(&[1.0, 2.0, 3.0, 5.0], part)), [1.0, 2.5, 3.5, 5.0]);
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.9)), (0.0, 7.0));
    }

    #[test]
    fn the_middle_mean_passes_over_what_is_out_of_the_ordinary() {
        assert_eq!(middle_mean(&[5.0]), 5.0);
        assert_eq!(middle_mean(&[4.0, 6.0]), 5.0);
        assert!((middle_mean(&[1.0, 2.0, 3.0, 5.0, 1000.0]) - (1.5 + 3.0 + 3.75) / 2.5).abs() < 1e-9);
    }

    #[test]
    fn equal_sides_have_no_change() {
        let one = runs(&[100.0, 101.0, 99.0]);
        let change = Sample::change(&one, &one, 0.0);
        assert_eq!(change.value, 0.0);
        assert!(change.low < 0.0 && change.high > 0.0);
    }

    #[test]
    fn intervals_are_wider_if_runs_differ_or_are_few() {
        let after = runs(&[110.0, 110.5, 109.5, 110.0, 110.2]);
        let alike = Sample::change(&runs(&[100.0, 100.5, 99.5, 100.0, 99.8]), &after, 0.0);
        let apart = Sample::change(&runs(&[100.0, 115.0, 90.0, 108.0, 97.0]), &after, 0.0);
        let single = Sample::change(&runs(&[100.0]), &runs(&[110.0]), 0.0);
        assert!(alike.low > 8.0 && alike.high < 12.0, "{alike:?}");
        assert!(apart.error() > 3.0 * alike.error(), "{apart:?}");
        assert!(single.low < 0.0, "{single:?}");
        assert!(Sample::change(&runs(&[100.0]), &runs(&[140.0]), 0.0).low > 10.0);
    }

    #[test]
    fn the_order_of_runs_and_steps_does_not_matter() {
        let (one, other) = (runs(&[100.0, 104.0, 97.0]), runs(&[97.0, 100.0, 104.0]));
        assert_eq!(one.estimate(), other.estimate());
        assert_eq!(Sample::change(&one, &other, 0.0), Sample::change(&other, &one, 0.0));
        let reversed = Sample::new(one.runs.iter().map(|run| run.iter().rev().copied().collect()));
        assert_eq!(one.estimate(), reversed.estimate());
    }

    #[test]
    fn absurd_values_do_no_harm() {
        let absurd = Sample::new([vec![f64::NAN, f64::INFINITY], vec![f64::MAX, 0.0, f64::MAX], vec![]]);
        assert_eq!((absurd.runs(), absurd.steps()), (1, 3));
        let _ = Sample::change(&absurd, &Sample::default(), 0.0);
        assert_eq!(Sample::default().estimate(), Estimate::default());
    }
}
