//! The factor that all spans of a step have in common.

use super::{
    alignment::Matrix,
    estimate::{Estimate, Sample, quantile},
};

/// How much longer all spans took after than before, as a factor: another load or speed of the machine.
///
/// A change of the program makes some spans longer, a slower machine makes all of them longer. So the median over the
/// larger spans of how much longer they took in a step is the machine's part, in that step. It is taken out of the
/// times of spans before they are compared. What remains is the program's; a change that makes everything slower by
/// the same factor cannot be told from a slower machine, unless both sides were run in turns.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Drift {
    /// The factor, 1 if nothing has changed.
    pub factor: Estimate,
    /// Whether the runs of both sides were made in turns, so that a slower machine would have slowed down both.
    pub in_turns: bool,
}

/// The factor of each step of each run.
#[derive(Debug)]
pub(super) struct Factors {
    sides: [Vec<Vec<f64>>; 2],
    /// How much the factor differs from span to span, as a relative standard deviation, if sides were not run in turns:
    /// another load slows down some spans more than others.
    pub(super) spread: f64,
    in_turns: bool,
}

impl Factors {
    /// The least number of spans that the factor is made of.
    const SPANS: usize = 3;
    /// The least part of a step that such a span takes.
    const PART: f64 = 0.01;
    /// A span whose factor differs by more than this from that of most others has changed itself.
    const CHANGED: f64 = 0.1;

    /// Returns the factors of all steps, all 1 if there are too few spans to tell. `steps` are the durations.
    pub(super) fn of(matrices: [&Matrix; 2], steps: [&Vec<Vec<f64>>; 2], in_turns: bool) -> Self {
        let ones = steps.map(|side| side.iter().map(|run| vec![1.0; run.len()]).collect());
        let paths = matrices[0].len();
        let centers = |path: usize| matrices.map(|matrix| Sample::new(matrix[path].iter().cloned()).center());
        let reference = |path: usize| {
            let sides = centers(path);
            let is_common = sides.iter().all(|&center| center > 0.0 && center.is_finite());
            is_common.then(|| (sides[0] * sides[1]).sqrt()).filter(|reference| reference.is_finite())
        };
        let step = steps.map(|side| Sample::new(side.iter().cloned()).center());
        let references: Vec<_> = (0..paths).filter_map(|path| Some((path, reference(path)?))).collect();
        let is_large = |(_, reference): &&(usize, f64)| *reference >= Self::PART * step[0].min(step[1]);
        let large: Vec<_> = references.iter().filter(is_large).copied().collect();
        if large.len() < Self::SPANS {
            return Self { sides: ones, spread: 0.0, in_turns };
        }
        let mut factors = Self { sides: Self::sides(&large, matrices, steps), spread: 0.0, in_turns };
        // Spans that have changed themselves would move the median.
        let log = |&(path, _): &(usize, f64)| {
            let [before, after] = [0, 1].map(|side| factors.scaled(side, &matrices[side][path]).center());
            (after / before).ln()
        };
        let logs: Vec<_> = large.iter().map(log).collect();
        let (middle, deviation) = deviation(logs.clone());
        let limit = Self::CHANGED.max(3.0 * deviation);
        let same: Vec<_> =
            large.iter().zip(&logs).filter(|(_, log)| (*log - middle).abs() <= limit).map(|(it, _)| *it).collect();
        if same.len() >= Self::SPANS && same.len() < large.len() {
            factors.sides = Self::sides(&same, matrices, steps);
        }
        factors.spread = if in_turns { 0.0 } else { deviation };
        factors
    }

    /// Returns the factor of each step: the median over these spans of their time, as a multiple of the reference.
    fn sides(spans: &[(usize, f64)], matrices: [&Matrix; 2], steps: [&Vec<Vec<f64>>; 2]) -> [Vec<Vec<f64>>; 2] {
        let of_step = |matrix: &Matrix, run: usize, step: usize| {
            let mut ratios: Vec<_> =
                spans.iter().map(|&(path, reference)| matrix[path][run][step] / reference).collect();
            ratios.sort_unstable_by(f64::total_cmp);
            let factor = quantile(&ratios, 0.5);
            if factor.is_finite() && factor > 0.0 { factor } else { 1.0 }
        };
        [0, 1].map(|side| {
            let runs = steps[side].iter().enumerate();
            runs.map(|(run, steps)| (0..steps.len()).map(|step| of_step(matrices[side], run, step)).collect()).collect()
        })
    }

    /// Returns the times of a path, or of steps, on one side without the drift.
    pub(super) fn scaled(&self, side: usize, runs: &[Vec<f64>]) -> Sample {
        let of_run = |(times, factors): (&Vec<f64>, &Vec<f64>)| {
            times.iter().zip(factors).map(|(time, factor)| time / factor).collect()
        };
        Sample::new(runs.iter().zip(&self.sides[side]).map(of_run))
    }

    /// Returns how much longer everything took.
    pub(super) fn drift(&self) -> Drift {
        let logs = |side: usize| Sample::new(self.sides[side].iter().map(|run| run.iter().map(|it| it.ln()).collect()));
        let Estimate { value, low, high } = Sample::change(&logs(0), &logs(1), 0.0);
        Drift { factor: Estimate { value: value.exp(), low: low.exp(), high: high.exp() }, in_turns: self.in_turns }
    }
}

/// Returns the median of values, and their standard deviation by the median distance to it, which a few others do not
/// change.
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
