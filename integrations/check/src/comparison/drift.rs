//! The factor that all spans of a step have in common.
//!
//! Unless a constant here says otherwise, it was chosen by hand while looking at trainings of candle-mnist on a busy
//! machine, with nothing changed and with 5 % more work in one span: `benches/README.md` describes them under "Checks".
//! No sweep over its values was kept. Before and after changing one, run `regressions` of `benches/candle`, which
//! counts false alarms and detected changes.

use super::{
    estimate::{Estimate, Noise},
    sample::{Matrix, Sample, add, quantile},
};
use serde::Serialize;

/// How much longer all spans took after than before, as a factor, because the machine's load or speed changed.
///
/// A change in the program makes some spans longer; a slower machine makes all of them longer. So in each step, the
/// factor that most of the larger spans have in common is attributed to the machine. It is removed from the times of
/// spans before they are compared, and what remains is due to the program. A change that makes everything slower by the
/// same factor cannot be told from a slower machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Drift {
    /// The factor, 1 if nothing has changed.
    pub factor: Estimate,
    /// Whether the runs of both sides alternated, so that a slower machine would have slowed down both.
    pub in_turns: bool,
}

impl Drift {
    /// Returns whether the factor differs from `1.00`, at the precision printed.
    pub fn is_notable(&self) -> bool {
        const HALF_A_HUNDREDTH: f64 = 0.005;
        (self.factor.value - 1.0).abs() >= HALF_A_HUNDREDTH
    }
}

/// The factor of each step of each run.
#[derive(Debug)]
pub(super) struct Factors {
    sides: [Vec<Vec<f64>>; 2],
    /// The time of the unchanged spans, if the factor is based on it. For each of these spans, the factor is based on
    /// the others.
    rest: Option<Rest>,
    pub(super) noise: Noise,
    /// The factor of a step before. Times without the drift are multiplied by it to match the machine before.
    pub(super) before: f64,
    in_turns: bool,
}

/// The spans that have not changed themselves.
#[derive(Clone, Debug)]
struct Rest {
    /// The reference of each path, if it is one of them.
    references: Vec<Option<f64>>,
    /// The sum of the references.
    reference: f64,
    /// The sum of the times in each step of each run.
    sums: [Vec<Vec<f64>>; 2],
}

/// A span that takes more than a small part of a step: its path, and its time in a step, averaged over both sides.
type Reference = (usize, f64);

impl Factors {
    /// The minimum number of spans for computing the factor: if two disagree, it is unknown which has changed.
    const SPANS: usize = 3;
    /// The minimum fraction of a step that such a span takes. Shorter ones are mostly noise.
    const PART: f64 = 0.01;
    /// A span whose factor differs by more than this from that of most others may have changed itself, and is excluded
    /// from their median. A smaller limit excludes spans that a changing load slowed down less or more than others;
    /// with a larger one, changed spans move the median.
    const CHANGED: f64 = 0.1;
    /// Like [`Self::CHANGED`], in standard deviations between spans: three are rare by chance.
    const CHANGED_DEVIATIONS: f64 = 3.0;
    /// A span is excluded from the sum if it disagrees with the others by more than this, and by more than
    /// [`Self::SURE_ERRORS`]. The sum has less noise than the median, so smaller changes can be told from noise.
    /// Changes smaller than this remain in the sum and count as drift; a smaller limit excludes more spans, so the sum
    /// covers fewer.
    const SURELY_CHANGED: f64 = 0.03;
    /// The number of standard errors at which a disagreement is not noise. It applies to the span with the largest
    /// disagreement of many, so it is more than the 2.6 of a 99 % interval.
    const SURE_ERRORS: f64 = 3.5;
    /// The minimum standard error of the logarithm of a span's factor. Runs of a very regular program would otherwise
    /// have none, and every difference would be infinitely certain. It matters only where runs differ by less than 0.2
    /// %.
    const LEAST_ERROR: f64 = 0.002;
    /// The fraction of the larger spans' time that must remain once the changed ones are excluded from the sum. With
    /// less, the factor would be that of a few small spans.
    const REST: f64 = 0.1;
    /// The most by which the clocks of a GPU slow down everything: from the boost clock to the base clock, which are
    /// 1,980 and 1,590 MHz on an H100. Nothing else runs on a GPU that is profiled. If all kernels take half the time,
    /// they are different kernels, such as those for bf16.
    pub(super) const GPU_CLOCKS: f64 = 1.25;

    fn new(sides: [Vec<Vec<f64>>; 2], rest: Option<Rest>, noise: Noise, in_turns: bool) -> Self {
        let before = usable(Sample::new(sides[0].iter().cloned()).center());
        Self { sides, rest, noise, before, in_turns }
    }

    /// Returns the factors of all steps, all 1 if there are too few spans to tell. `steps` are the durations.
    pub(super) fn of(matrices: [&Matrix; 2], steps: [&Vec<Vec<f64>>; 2], in_turns: bool) -> Self {
        let large = references(matrices, steps);
        if large.len() < Self::SPANS {
            return Self::none(steps, in_turns);
        }
        // The median of the factor over spans is right even if the span that takes most of the step has changed.
        let mut by_median = Self::new(medians(&large, matrices), None, Noise::default(), in_turns);
        let logs: Vec<_> = large.iter().map(|&(path, _)| by_median.log_change(matrices, path, None)).collect();
        let (middle, deviation) = deviation(logs.clone());
        let limit = Self::CHANGED.max(Self::CHANGED_DEVIATIONS * deviation);
        let same = large.iter().zip(&logs).filter(|(_, log)| (*log - middle).abs() <= limit);
        let same: Vec<Reference> = same.map(|(reference, _)| *reference).collect();
        if same.len() >= Self::SPANS && same.len() < large.len() {
            // Spans that have changed themselves would move it.
            by_median = Self::new(medians(&same, matrices), None, Noise::default(), in_turns);
        }
        let mut errors: Vec<_> = large.iter().map(|&(path, _)| by_median.log_error(matrices, path)).collect();
        errors.sort_unstable_by(f64::total_cmp);
        let error = quantile(&errors, 0.5);
        // Without the part that is already in the intervals of the spans.
        let spread = (deviation.powi(2) - error.powi(2)).max(0.0).sqrt();
        let spread = if spread.is_finite() { spread } else { deviation };
        by_median.noise = Noise { spread: if in_turns { 0.0 } else { spread }, error };
        // The sum of their times has less noise, if it agrees.
        let by_sum = Self::by_sum(&large, matrices, in_turns, by_median.noise);
        let between = |factors: &Self| {
            let [before, after] = factors.sides.each_ref().map(|side| Sample::new(side.iter().cloned()).median());
            (after / before).ln()
        };
        let allowed = Self::CHANGED.max(Self::CHANGED_DEVIATIONS * deviation / (large.len() as f64).sqrt());
        match by_sum.filter(|by_sum| (between(by_sum) - between(&by_median)).abs() <= allowed) {
            Some(by_sum) => by_sum,
            None => by_median,
        }
    }

    /// Returns factors that are all 1.
    fn none(steps: [&Vec<Vec<f64>>; 2], in_turns: bool) -> Self {
        let sides = steps.map(|side| side.iter().map(|run| vec![1.0; run.len()]).collect());
        Self::new(sides, None, Noise::default(), in_turns)
    }

    /// Returns factors that are all 1 if the drift is too large for a machine, and so is due to the program.
    pub(super) fn limited_to(self, most: f64, steps: [&Vec<Vec<f64>>; 2]) -> Self {
        let is_large = self.drift().factor.value.ln().abs() > most.ln();
        if is_large { Self::none(steps, self.in_turns) } else { self }
    }

    /// Returns the factors based on the total time of all unchanged spans, if there are any.
    fn by_sum(large: &[Reference], matrices: [&Matrix; 2], in_turns: bool, noise: Noise) -> Option<Self> {
        let mut same = large.to_vec();
        let all: f64 = large.iter().map(|(_, reference)| reference).sum();
        while same.len() >= 2 {
            let rest = Rest::of(&same, matrices);
            let factors = Self::new(rest.factors(), Some(rest), noise, in_turns);
            let changed = |&(path, reference): &Reference| {
                let log = factors.log_change(matrices, path, Some(path));
                let score = log.abs() / factors.log_error(matrices, path);
                (path, reference, if log.abs() > Self::SURELY_CHANGED { score } else { 0.0 })
            };
            let first = same.iter().map(changed).max_by(|a, b| a.2.total_cmp(&b.2))?;
            if first.2 < Self::SURE_ERRORS {
                return Some(factors);
            }
            same.retain(|(path, _)| *path != first.0);
            if same.iter().map(|(_, reference)| reference).sum::<f64>() < Self::REST * all {
                return None;
            }
        }
        None
    }

    /// Returns the logarithm of how much longer a span took, without the drift.
    fn log_change(&self, matrices: [&Matrix; 2], path: usize, own: Option<usize>) -> f64 {
        let [before, after] = [0, 1].map(|side| Sample::new(self.scaled(side, own, &matrices[side][path])).median());
        (after / before).ln()
    }

    /// Returns its standard error.
    fn log_error(&self, matrices: [&Matrix; 2], path: usize) -> f64 {
        let square = |side: usize| {
            let sample = Sample::new(self.scaled(side, Some(path), &matrices[side][path]));
            (sample.spread().0 / sample.median()).powi(2) / sample.runs().max(1) as f64
        };
        (square(0) + square(1)).sqrt().max(Self::LEAST_ERROR)
    }

    /// Returns the times of a path, or of steps, on one side without the drift. `own` is the path, if the times are its
    /// self times.
    fn scaled(&self, side: usize, own: Option<usize>, runs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let rest = self.rest.as_ref().zip(own);
        let of_rest = rest.and_then(|(rest, own)| Some((rest, rest.references[own]?)));
        let of_run = |(run, times): (usize, &Vec<f64>)| {
            let factor = |step: usize, time: f64| match of_rest {
                Some((rest, own)) => (rest.sums[side][run][step] - time) / (rest.reference - own),
                None => self.sides[side][run][step],
            };
            let scaled = |(step, &time): (usize, &f64)| time / usable(factor(step, time));
            times.iter().enumerate().map(scaled).collect()
        };
        runs.iter().enumerate().map(of_run).collect()
    }

    /// Returns the times of a path on both sides as they would have been on the machine before.
    pub(super) fn adjusted(&self, runs: [&Vec<Vec<f64>>; 2], own: Option<usize>) -> [Vec<Vec<f64>>; 2] {
        let mut scaled = [0, 1].map(|side| self.scaled(side, own, runs[side]));
        let center = |runs: &[Vec<f64>]| Sample::new(runs.iter().cloned()).center();
        let before = center(&scaled[0]);
        let unit = if before > 0.0 { center(runs[0]) / before } else { self.before };
        scaled.iter_mut().flatten().flatten().for_each(|time| *time *= unit);
        scaled
    }

    /// Returns how much longer everything took.
    pub(super) fn drift(&self) -> Drift {
        let [before, after] = [0, 1].map(|side| Sample::new(self.sides[side].iter().cloned()));
        let none = Estimate { value: 1.0, low: 1.0, high: 1.0 };
        let factor = match self.is_known() {
            true => Sample::compare(&before, &after, Noise::default()).ratio().unwrap_or(none),
            false => none,
        };
        Drift { factor, in_turns: self.in_turns }
    }

    /// Returns whether there were enough spans to determine the factor. Otherwise all are 1.
    pub(super) fn is_known(&self) -> bool {
        self.sides.iter().flatten().flatten().any(|&factor| factor != 1.0)
    }
}

impl Rest {
    fn of(spans: &[Reference], matrices: [&Matrix; 2]) -> Self {
        let mut references = vec![None; matrices[0].len()];
        spans.iter().for_each(|&(path, reference)| references[path] = Some(reference));
        let sum = |matrix: &Matrix| {
            let mut sums = matrix[spans[0].0].clone();
            spans[1..].iter().for_each(|(path, _)| add(&mut sums, &matrix[*path]));
            sums
        };
        let reference = spans.iter().map(|(_, reference)| reference).sum();
        Self { references, reference, sums: matrices.map(sum) }
    }

    /// Returns the factor of each step.
    fn factors(&self) -> [Vec<Vec<f64>>; 2] {
        let of_run = |sums: &Vec<f64>| sums.iter().map(|sum| usable(sum / self.reference)).collect();
        [0, 1].map(|side| self.sums[side].iter().map(of_run).collect())
    }
}

/// Returns the spans that both sides have and that take more than a small part of a step.
fn references(matrices: [&Matrix; 2], steps: [&Vec<Vec<f64>>; 2]) -> Vec<Reference> {
    let step = steps.map(|side| Sample::new(side.iter().cloned()).median());
    let reference = |path: usize| {
        let sides = matrices.map(|matrix| Sample::new(matrix[path].iter().cloned()).median());
        let is_common = sides.iter().all(|&center| center > 0.0 && center.is_finite());
        let reference = is_common.then(|| (sides[0] * sides[1]).sqrt())?;
        (reference.is_finite() && reference >= Factors::PART * step[0].min(step[1])).then_some((path, reference))
    };
    (0..matrices[0].len()).filter_map(reference).collect()
}

/// Returns the factor of each step: the median over these spans of their time, as a multiple of the reference.
fn medians(spans: &[Reference], matrices: [&Matrix; 2]) -> [Vec<Vec<f64>>; 2] {
    let of_step = |matrix: &Matrix, run: usize, step: usize| {
        let mut ratios: Vec<_> = spans.iter().map(|&(path, reference)| matrix[path][run][step] / reference).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        usable(quantile(&ratios, 0.5))
    };
    matrices.map(|matrix| {
        let runs = matrix[spans[0].0].iter().enumerate();
        runs.map(|(run, steps)| (0..steps.len()).map(|step| of_step(matrix, run, step)).collect()).collect()
    })
}

/// Returns a factor, or 1 if it is invalid.
fn usable(factor: f64) -> f64 {
    if factor.is_finite() && factor > 0.0 { factor } else { 1.0 }
}

/// Returns the median of values, and their standard deviation based on the median distance to it, which is robust
/// against outliers. In a normal distribution, the standard deviation is 1.48 times that distance.
fn deviation(mut values: Vec<f64>) -> (f64, f64) {
    let median = |values: &mut Vec<f64>| {
        values.sort_unstable_by(f64::total_cmp);
        quantile(values, 0.5)
    };
    let middle = median(&mut values);
    let mut distances: Vec<_> = values.iter().map(|value| (value - middle).abs()).collect();
    let deviation = 1.48 * median(&mut distances);
    if middle.is_finite() && deviation.is_finite() { (middle, deviation) } else { (0.0, 0.0) }
}
