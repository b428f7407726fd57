//! The times of one side of a comparison: their center, and its error.

use super::estimate::{Estimate, Sides, student};

/// Times of each path in each step of each run: by path, run and step.
pub(super) type Matrix = Vec<Vec<Vec<f64>>>;

/// The times of one side of a comparison: those of the steps of each run.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The sorted times of the steps of each run, ordered by the runs' medians.
    runs: Vec<Vec<f64>>,
}

impl Sample {
    /// The number of resamples: a standard deviation of this many draws has an error of 2 %.
    const DRAWS: usize = 1000;
    /// The relative standard deviation assumed between runs if there is only one. `docs/check.md` promises it: with
    /// less, two single runs of the same program would differ by accident; with more, only larger changes would be
    /// found.
    pub(super) const SINGLE_RUN: f64 = 0.05;
    /// The number of steps at which their spread becomes meaningful: with fewer, the quartiles are the extremes.
    pub(super) const ENOUGH: usize = 5;
    /// The relative standard deviation assumed between steps if there are fewer: that of trainings on a busy machine. A
    /// change must then be large to be detected: by a factor of about 7 with one step on each side, of 2 with four.
    const FEW_STEPS: f64 = 0.1;

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

    /// Returns the number of steps in all runs.
    pub(super) fn steps(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Returns the interquartile mean of the medians of the runs, 0 if there are none.
    pub(super) fn center(&self) -> f64 {
        let medians: Vec<_> = self.runs.iter().map(|run| quantile(run, 0.5)).collect();
        middle_mean(&medians)
    }

    /// Returns the standard deviation of the runs' medians, and the one expected from their steps alone.
    pub(super) fn spread(&self) -> (f64, f64) {
        let medians: Vec<_> = self.runs.iter().map(|run| quantile(run, 0.5)).collect();
        let count = medians.len().max(1) as f64;
        let mean = medians.iter().sum::<f64>() / count;
        let squares = medians.iter().map(|median| (median - mean).powi(2)).sum::<f64>();
        let between = if medians.len() > 1 { (squares / (count - 1.0)).sqrt() } else { mean * Self::SINGLE_RUN };
        // The spread of steps by their quartiles, which are 1.35 standard deviations apart in a normal distribution.
        let of_steps = |run: &Vec<f64>| {
            let spread = (quantile(run, 0.75) - quantile(run, 0.25)) / 1.35;
            MEDIAN_ERROR * spread / (run.len() as f64).sqrt()
        };
        (between, self.runs.iter().map(of_steps).sum::<f64>() / count)
    }

    /// Returns the center, with its own interval.
    pub(super) fn estimate(&self) -> Estimate {
        let error = student_of_runs(self.runs().saturating_sub(1), self.steps()) * self.deviation();
        Estimate::around(self.center(), error)
    }

    /// Compares the centers. `spread` is a relative standard deviation between the sides that the runs of each do not
    /// show.
    pub(super) fn compare(before: &Self, after: &Self, spread: f64) -> Sides {
        let (runs, steps) = (before.runs().min(after.runs()), before.steps().min(after.steps()));
        // With one run on a side, the spread between runs is assumed, without degrees of freedom.
        let freedom = if runs < 2 { 0 } else { before.runs() + after.runs() - 2 };
        let times = student_of_runs(freedom, steps);
        let log_errors = [before.deviation(), after.deviation().hypot(spread)].map(|deviation| times * deviation);
        Sides { centers: [before.center(), after.center()], log_errors }
    }

    /// Returns the standard deviation of the center's logarithm, by resampling runs and, within each of them, steps.
    ///
    /// The median of resampled steps is drawn directly: its rank is close to normal, with a variance of a quarter of
    /// the number of steps. Resampling few runs underestimates the variance by a known factor. Quantiles of the draws
    /// would not do for an interval: with a few runs, the most extreme draws are the most extreme run.
    fn deviation(&self) -> f64 {
        let (count, center) = (self.runs.len(), self.center());
        if center <= 0.0 {
            return 0.0;
        }
        let spread = match count {
            1 => 1.0,
            _ => (count as f64 / (count - 1) as f64).sqrt(),
        };
        let (random, is_few) = (&mut Random::new(1), self.steps() < Self::ENOUGH);
        let mut medians = vec![0.0; count];
        let mut draw = || {
            for median in &mut medians {
                let run = &self.runs[random.below(count)];
                let (middle, root) = ((run.len() - 1) as f64 / 2.0, (run.len() as f64).sqrt());
                *median = at_rank(run, middle + random.normal() * root / 2.0);
                if count == 1 {
                    *median *= 1.0 + Self::SINGLE_RUN * random.normal();
                }
                if is_few {
                    *median *= 1.0 + MEDIAN_ERROR * Self::FEW_STEPS / root * random.normal();
                }
            }
            medians.sort_unstable_by(f64::total_cmp);
            // Steps without the span have no logarithm.
            (middle_mean(&medians) / center).max(LEAST_DRAW).ln()
        };
        let draws: Vec<_> = (0..Self::DRAWS).map(|_| draw()).collect();
        let mean = draws.iter().sum::<f64>() / Self::DRAWS as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / Self::DRAWS as f64;
        spread * variance.sqrt()
    }
}

/// The smallest fraction of the center that a draw counts as. So few draws are that far off that their size does not
/// matter; without a limit, a draw of 0 would have no logarithm.
const LEAST_DRAW: f64 = 0.05;

/// The standard error of a median as a multiple of that of the mean, for normally distributed values: √(π/2).
const MEDIAN_ERROR: f64 = 1.25;

/// Returns [`student`] for runs with this many steps: if these are few, it is at least that of the steps.
fn student_of_runs(freedom: usize, steps: usize) -> f64 {
    match steps {
        1..Sample::ENOUGH => student(freedom).max(student((steps - 1).max(1))),
        _ => student(freedom),
    }
}

/// Returns a quantile of sorted values; 0 if there are none. It is interpolated between the two values nearest by rank,
/// as in reports: the median of an even number of values is the mean of the middle two.
pub(super) fn quantile(sorted: &[f64], part: f64) -> f64 {
    at_rank(sorted, part * sorted.len().saturating_sub(1) as f64)
}

/// Returns the interquartile mean of sorted values, in which the values at its ends count partially; 0 if there are
/// none.
///
/// It is as good as the median if a run is an outlier, and better if none is.
fn middle_mean(sorted: &[f64]) -> f64 {
    let count = sorted.len() as f64;
    let (low, high) = (count / 4.0, count * 3.0 / 4.0);
    let weight = |index: usize| ((index as f64 + 1.0).min(high) - (index as f64).max(low)).max(0.0);
    let sum: f64 = sorted.iter().enumerate().map(|(index, value)| weight(index) * value).sum();
    if sorted.is_empty() { 0.0 } else { sum / (high - low) }
}

/// Returns the value at a rank from 0, interpolated between the two nearest; 0 if there are none.
fn at_rank(sorted: &[f64], rank: f64) -> f64 {
    let rank = rank.clamp(0.0, sorted.len().saturating_sub(1) as f64);
    let value = |index: f64| sorted.get(index as usize).copied().unwrap_or(0.0);
    match rank.fract() {
        0.0 => value(rank),
        part => value(rank.floor()) + (value(rank.ceil()) - value(rank.floor())) * part,
    }
}

/// A random number generator (SplitMix64), deterministic for a given seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to 1, excluding 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `limit`, which is not 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.uniform() * limit as f64) as usize
    }

    /// Returns a normally distributed number with mean 0 and variance 1, by the Box–Muller method.
    pub(crate) fn normal(&mut self) -> f64 {
        let (length, angle) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * length.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Random, Sample, middle_mean, quantile};

    fn runs(centers: &[f64]) -> Sample {
        Sample::new(centers.iter().map(|center| (0..40).map(|step| center + f64::from(step % 5) - 2.0).collect()))
    }

    fn change(before: &Sample, after: &Sample) -> Estimate {
        Sample::compare(before, after, 0.0).change()
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
        let change = change(&one, &one);
        assert_eq!(change.value, 0.0);
        assert!(change.low < 0.0 && change.high > 0.0);
    }

    #[test]
    fn intervals_are_wider_if_runs_differ_or_are_few() {
        let after = runs(&[110.0, 110.5, 109.5, 110.0, 110.2]);
        let alike = change(&runs(&[100.0, 100.5, 99.5, 100.0, 99.8]), &after);
        let apart = change(&runs(&[100.0, 115.0, 90.0, 108.0, 97.0]), &after);
        let single = change(&runs(&[100.0]), &runs(&[110.0]));
        assert!(alike.low > 8.0 && alike.high < 12.0, "{alike:?}");
        assert!(apart.error() > 3.0 * alike.error(), "{apart:?}");
        assert!(single.low < 0.0, "{single:?}");
        assert!(change(&runs(&[100.0]), &runs(&[140.0])).low > 10.0);
    }

    #[test]
    fn the_order_of_runs_and_steps_does_not_matter() {
        let (one, other) = (runs(&[100.0, 104.0, 97.0]), runs(&[97.0, 100.0, 104.0]));
        assert_eq!(one.estimate(), other.estimate());
        assert_eq!(change(&one, &other), change(&other, &one));
        let reversed = Sample::new(one.runs.iter().map(|run| run.iter().rev().copied().collect()));
        assert_eq!(one.estimate(), reversed.estimate());
    }

    #[test]
    fn absurd_values_do_no_harm() {
        let absurd = Sample::new([vec![f64::NAN, f64::INFINITY], vec![f64::MAX, 0.0, f64::MAX], vec![]]);
        assert_eq!((absurd.runs(), absurd.steps()), (1, 3));
        let _ = change(&absurd, &Sample::default());
        assert_eq!(Sample::default().estimate(), Estimate::default());
    }

    #[test]
    fn quantiles_are_between_the_nearest_values() {
        let values = [1.0, 2.0, 3.0, 5.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| quantile(&values, part)), [1.0, 2.5, 3.5, 5.0]);
        assert_eq!((quantile(&[], 0.5), quantile(&[7.0], 0.9)), (0.0, 7.0));
    }

    #[test]
    fn numbers_are_spread_as_they_should_be() {
        let mut random = Random::new(1);
        let numbers: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 10_000.0;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 10_000.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let mut counts = [0; 3];
        (0..3000).for_each(|_| counts[random.below(3)] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
