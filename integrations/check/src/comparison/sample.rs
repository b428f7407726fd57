//! The times of one side of a comparison: their center, and its error.

use super::estimate::{Estimate, Noise, Sides, student};

/// Times of each path in each step of each run: by path, run and step.
pub(super) type Matrix = Vec<Vec<Vec<f64>>>;

/// The times of one side of a comparison: those of the steps of each run.
///
/// Runs, and steps within runs, are in the order of their durations, which [`Alignment`](super::spans::Alignment)
/// sees to. So the center of each time is a mean over the same steps, and a sum of centers is the center of the sum:
/// the times of a tree of spans add up. Medians do not.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    runs: Vec<Vec<f64>>,
}

impl Sample {
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
        let finite = |mut times: Vec<f64>| {
            times.retain(|time| time.is_finite());
            times
        };
        Self { runs: runs.into_iter().map(finite).filter(|run| !run.is_empty()).collect() }
    }

    /// Returns the number of runs with steps.
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Returns the number of steps in all runs.
    pub(super) fn steps(&self) -> usize {
        self.runs.iter().map(Vec::len).sum()
    }

    /// Returns whether no step has any time.
    pub(super) fn is_nothing(&self) -> bool {
        self.runs.iter().flatten().all(|&time| time == 0.0)
    }

    /// Returns the mean over the middle runs of the mean over their typical steps, 0 if there are none.
    pub(super) fn center(&self) -> f64 {
        mean(middle(&self.typical()))
    }

    /// Returns the interquartile mean over runs of the median over steps, 0 if there are none: nothing that is out of
    /// the ordinary counts, whatever the duration of its step.
    pub(super) fn median(&self) -> f64 {
        let mut medians: Vec<_> = self.runs.iter().map(|run| quantile(&sorted(run), 0.5)).collect();
        medians.sort_unstable_by(f64::total_cmp);
        middle_mean(&medians)
    }

    /// Returns the time of a typical step of each run.
    pub(super) fn typical(&self) -> Vec<f64> {
        self.runs.iter().map(|run| typical(run)).collect()
    }

    /// Returns the standard deviation of the runs' typical steps, and the one expected from their steps alone.
    pub(super) fn spread(&self) -> (f64, f64) {
        let typical = self.typical();
        let between = match typical.len() {
            0 | 1 => mean(&typical) * Self::SINGLE_RUN,
            _ => deviation(&typical),
        };
        // The spread of steps by their quartiles, which are 1.35 standard deviations apart in a normal distribution.
        let of_steps = |run: &Vec<f64>| {
            let sorted = sorted(run);
            let spread = (quantile(&sorted, 0.75) - quantile(&sorted, 0.25)) / 1.35;
            TYPICAL_ERROR * spread / (run.len() as f64).sqrt()
        };
        (between, mean(&self.runs.iter().map(of_steps).collect::<Vec<_>>()))
    }

    /// Returns the center, with its own interval.
    pub(super) fn estimate(&self) -> Estimate {
        let error = student_of_runs(self.runs().saturating_sub(1), self.steps()) * self.deviation();
        Estimate::around(self.center(), error)
    }

    /// Compares the centers.
    pub(super) fn compare(before: &Self, after: &Self, noise: Noise) -> Sides {
        let (runs, steps) = (before.runs().min(after.runs()), before.steps().min(after.steps()));
        // With one run on a side, the spread between runs is assumed, without degrees of freedom.
        let freedom = if runs < 2 { 0 } else { before.runs() + after.runs() - 2 };
        let times = student_of_runs(freedom, steps);
        let log_errors = [times * before.deviation(), (times * after.deviation()).hypot(student(0) * noise.spread)];
        let are_apart = are_apart(&before.typical(), &after.typical());
        Sides { centers: [before.center(), after.center()], log_errors, are_apart, freedom, noise }
    }

    /// Returns the standard deviation of the center's logarithm: from the spread between runs, but not less than their
    /// steps alone would give, as two or three runs may agree by accident.
    fn deviation(&self) -> f64 {
        let center = self.center();
        if center <= 0.0 {
            return 0.0;
        }
        // Steps without the span have no logarithm.
        let log = |time: f64| (time / center).max(LEAST_PART).ln();
        let typical: Vec<_> = self.typical().into_iter().map(log).collect();
        let within = self.spread().1 / center;
        let of_a_run = match typical.len() {
            1 => Self::SINGLE_RUN.hypot(within),
            _ => deviation(&typical).max(within),
        };
        let few = if self.steps() < Self::ENOUGH { TYPICAL_ERROR * Self::FEW_STEPS } else { 0.0 };
        let counted = middle(&typical).len().max(1) as f64;
        (of_a_run / counted.sqrt()).hypot(few / (self.steps() as f64).sqrt())
    }
}

/// The smallest part of the center that a run counts as. So few runs are that far off that their size does not matter;
/// without a limit, a run without the span would have no logarithm.
const LEAST_PART: f64 = 0.05;

/// The standard error of a typical step as a multiple of that of the mean of all steps: √2, as half of them count.
const TYPICAL_ERROR: f64 = 1.42;

/// One in this many steps is left out at each end: the middle half counts. Some steps do more than others, or meet with
/// another program; a few are twice as long on any machine.
const LEFT_OUT_STEPS: usize = 4;
/// One in this many runs is left out at each end, if there are as many. With fewer, each run counts.
const LEFT_OUT_RUNS: usize = 5;

/// Returns the mean over the middle half of the steps, which are in the order of their durations.
pub(super) fn typical(steps: &[f64]) -> f64 {
    // At least that many: of six steps, two are easily out of the ordinary.
    let ends = steps.len().div_ceil(LEFT_OUT_STEPS).min(steps.len().saturating_sub(1) / 2);
    mean(&steps[ends..steps.len() - ends])
}

/// Adds the times of each step of each run.
pub(super) fn add(sums: &mut [Vec<f64>], times: &[Vec<f64>]) {
    for (sums, times) in sums.iter_mut().zip(times) {
        sums.iter_mut().zip(times).for_each(|(sum, time)| *sum += time);
    }
}

/// The fewest runs that say something by all being slower: those of equal programs are, the second ones slower, in one
/// of 20 comparisons of three with three, but in one of 6 of two with two.
const RUNS_APART: usize = 3;

/// Returns whether each run of one side takes longer than each of the other, and there are enough.
fn are_apart(before: &[f64], after: &[f64]) -> bool {
    let least = |runs: &[f64]| runs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = |runs: &[f64]| runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    before.len().min(after.len()) >= RUNS_APART && (most(before) < least(after) || most(after) < least(before))
}

/// Returns the runs that count.
fn middle(runs: &[f64]) -> &[f64] {
    let ends = runs.len() / LEFT_OUT_RUNS;
    &runs[ends..runs.len() - ends]
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the standard deviation of a population with these values.
fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / values.len().saturating_sub(1).max(1) as f64).sqrt()
}

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
fn middle_mean(sorted: &[f64]) -> f64 {
    let count = sorted.len() as f64;
    let (low, high) = (count / 4.0, count * 3.0 / 4.0);
    let weight = |index: usize| ((index as f64 + 1.0).min(high) - (index as f64).max(low)).max(0.0);
    let sum: f64 = sorted.iter().enumerate().map(|(index, value)| weight(index) * value).sum();
    if sorted.is_empty() { 0.0 } else { sum / (high - low) }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values
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
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Random(u64);

#[cfg(test)]
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
    use super::{Estimate, Noise, Random, Sample, middle_mean, quantile, typical};

    fn runs(centers: &[f64]) -> Sample {
        Sample::new(centers.iter().map(|center| (0..40).map(|step| center + f64::from(step % 5) - 2.0).collect()))
    }

    fn change(before: &Sample, after: &Sample) -> Estimate {
        Sample::compare(before, after, Noise::default()).change()
    }

    #[test]
    fn the_middle_mean_passes_over_what_is_out_of_the_ordinary() {
        assert_eq!(middle_mean(&[5.0]), 5.0);
        assert_eq!(middle_mean(&[4.0, 6.0]), 5.0);
        assert!((middle_mean(&[1.0, 2.0, 3.0, 5.0, 1000.0]) - (1.5 + 3.0 + 3.75) / 2.5).abs() < 1e-9);
    }

    #[test]
    fn a_typical_step_is_of_the_middle_half() {
        assert_eq!((typical(&[]), typical(&[5.0]), typical(&[4.0, 6.0])), (0.0, 5.0, 5.0));
        assert_eq!((typical(&[1.0, 2.0, 30.0]), typical(&[1.0, 2.0, 3.0, 30.0])), (2.0, 2.5));
        assert_eq!(typical(&[1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 900.0, 1000.0]), 4.75 + 0.5);
        let sum = runs(&[1.0, 2.0, 3.0, 4.0, 50.0]).center();
        assert!((sum - 3.0).abs() < 1e-9, "{sum}");
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
