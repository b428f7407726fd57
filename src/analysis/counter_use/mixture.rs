//! Estimates the values of things from samples that mix them.
//!
//! In sample *i*, thing *g* takes the share *f(i, g)* of the time, and has the unknown value *x(g)*. The sample's value
//! is the sum of *f(i, g) · x(g)*, and some noise. With more samples than things, least squares tell the *x(g)*, even
//! if each thing is shorter than a sample. Things that always take the same shares of their samples cannot be told
//! apart. So each has a prior, the mean of its samples with a wide deviation, and a result comes with its standard
//! error: as wide as the prior where the samples say nothing.

/// The shares of things in samples.
#[derive(Clone, Debug)]
pub(super) struct Mixture {
    /// The things in each sample, with their shares.
    rows: Vec<Vec<(usize, f64)>>,
    things: usize,
    /// The sum over samples of the products of the shares of two things, row by row.
    products: Vec<f64>,
    /// The largest share of each thing in a sample.
    largest_shares: Vec<f64>,
}

/// The estimated values of things, and how they vary together.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    values: Vec<f64>,
    /// The Cholesky factor of the inverse of the covariance, without the variance of a sample.
    factor: Vec<f64>,
    variance: f64,
}

impl Mixture {
    /// The deviation of the prior of a thing that fills samples, in percent of the largest sample. One that never takes
    /// more than a tenth of a sample may have ten times the value, so the deviation is that much wider.
    const PRIOR: f64 = 30.0;
    /// The least share for which that holds, so that numbers stay in bounds.
    const LEAST_SHARE: f64 = 1e-3;
    /// The least deviation of a sample, in percent of the largest value: kernels vary by that much from run to run.
    const LEAST_NOISE: f64 = 0.5;
    /// The deviation of a sample that the first of two estimates assumes.
    const FIRST_NOISE: f64 = 2.0;

    pub(super) fn new(rows: Vec<Vec<(usize, f64)>>, things: usize) -> Self {
        let mut products = vec![0.0; things * things];
        let mut largest_shares = vec![Self::LEAST_SHARE; things];
        for row in &rows {
            for &(a, share_a) in row {
                largest_shares[a] = largest_shares[a].max(share_a);
                for &(b, share_b) in row {
                    products[a * things + b] += share_a * share_b;
                }
            }
        }
        Self { rows, things, products, largest_shares }
    }

    /// Estimates the values of things from those of the samples. Values are not negative.
    pub(super) fn estimate(&self, samples: &[f64]) -> Estimate {
        let largest = samples.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let unit = largest / 100.0;
        let samples: Vec<_> = samples.iter().map(|value| value / unit).collect();
        let prior = self.means(&samples);
        let mut estimate = self.solve(&samples, &prior, Self::FIRST_NOISE.powi(2));
        let variance = self.residual_variance(&samples, &estimate.values).max(Self::LEAST_NOISE.powi(2));
        estimate = self.solve(&samples, &prior, variance);
        estimate.values.iter_mut().for_each(|value| *value *= unit);
        estimate.variance *= unit * unit;
        estimate
    }

    /// Returns the mean of the samples that each thing is in, weighted by its share.
    fn means(&self, samples: &[f64]) -> Vec<f64> {
        let mut sums = vec![(0.0, 0.0); self.things];
        for (row, value) in self.rows.iter().zip(samples) {
            for &(thing, share) in row {
                sums[thing].0 += share * value;
                sums[thing].1 += share;
            }
        }
        sums.into_iter().map(|(sum, weight)| if weight > 0.0 { sum / weight } else { 0.0 }).collect()
    }

    fn residual_variance(&self, samples: &[f64], values: &[f64]) -> f64 {
        let residual = |(row, sample): (&Vec<(usize, f64)>, &f64)| {
            let mixed: f64 = row.iter().map(|&(thing, share)| share * values[thing]).sum();
            (sample - mixed).powi(2)
        };
        let sum: f64 = self.rows.iter().zip(samples).map(residual).sum();
        // Each estimated thing takes a degree of freedom, as far as there are samples for it.
        let free = samples.len().saturating_sub(self.things).max(samples.len() / 2).max(1);
        sum / free as f64
    }

    fn solve(&self, samples: &[f64], prior: &[f64], variance: f64) -> Estimate {
        let things = self.things;
        let weight = |share: &f64| variance * (share / Self::PRIOR).powi(2);
        let weights: Vec<_> = self.largest_shares.iter().map(weight).collect();
        let mut right: Vec<_> = weights.iter().zip(prior).map(|(weight, mean)| weight * mean).collect();
        for (row, value) in self.rows.iter().zip(samples) {
            row.iter().for_each(|&(thing, share)| right[thing] += share * value);
        }
        let mut matrix = self.products.clone();
        (0..things).for_each(|thing| matrix[thing * things + thing] += weights[thing]);
        let factor = cholesky(matrix.clone(), things);
        let mut values = solve_factored(&factor, things, &right);
        // Where a value would be negative, it is 0, and the others are estimated with that.
        let mut fixed = vec![false; things];
        for _ in 0..Self::ROUNDS {
            let negative: Vec<_> = (0..things).filter(|&thing| values[thing] < 0.0 && !fixed[thing]).collect();
            if negative.is_empty() {
                break;
            }
            negative.into_iter().for_each(|thing| fixed[thing] = true);
            let mut matrix = matrix.clone();
            let mut right = right.clone();
            for thing in (0..things).filter(|&thing| fixed[thing]) {
                right[thing] = 0.0;
                for other in 0..things {
                    let keep = f64::from(u8::from(other == thing));
                    (matrix[thing * things + other], matrix[other * things + thing]) = (keep, keep);
                }
            }
            values = solve_factored(&cholesky(matrix, things), things, &right);
        }
        values.iter_mut().for_each(|value| *value = value.max(0.0));
        Estimate { values, factor, variance }
    }

    /// How often values are estimated again without those that were negative: each round fixes at least one, and few
    /// become negative only later.
    const ROUNDS: usize = 8;
}

impl Estimate {
    /// Returns the mean of some things by their weights, and its standard error.
    pub(super) fn mean(&self, weights: &[(usize, f64)]) -> (f64, f64) {
        let things = self.values.len();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        if total <= 0.0 {
            return (0.0, f64::INFINITY);
        }
        let mean = weights.iter().map(|&(thing, weight)| weight * self.values[thing]).sum::<f64>() / total;
        let mut dense = vec![0.0; things];
        weights.iter().for_each(|&(thing, weight)| dense[thing] += weight / total);
        let solved = solve_factored(&self.factor, things, &dense);
        let spread: f64 = dense.iter().zip(&solved).map(|(weight, solved)| weight * solved).sum();
        (mean, (self.variance * spread.max(0.0)).sqrt())
    }
}

/// Replaces a positive definite matrix with its lower Cholesky factor.
fn cholesky(mut matrix: Vec<f64>, size: usize) -> Vec<f64> {
    for row in 0..size {
        for column in 0..=row {
            let known: f64 = (0..column).map(|inner| matrix[row * size + inner] * matrix[column * size + inner]).sum();
            let rest = matrix[row * size + column] - known;
            matrix[row * size + column] = if row == column {
                // Rounding may leave nothing of a thing that others explain.
                rest.max(f64::MIN_POSITIVE).sqrt()
            } else {
                rest / matrix[column * size + column]
            };
        }
    }
    matrix
}

/// Solves the equations of a matrix whose Cholesky factor is given.
fn solve_factored(factor: &[f64], size: usize, right: &[f64]) -> Vec<f64> {
    let mut solved = right.to_vec();
    for row in 0..size {
        let known: f64 = (0..row).map(|inner| factor[row * size + inner] * solved[inner]).sum();
        solved[row] = (solved[row] - known) / factor[row * size + row];
    }
    for row in (0..size).rev() {
        let known: f64 = (row + 1..size).map(|inner| factor[inner * size + row] * solved[inner]).sum();
        solved[row] = (solved[row] - known) / factor[row * size + row];
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::Mixture;
    use proptest::prelude::*;

    #[test]
    fn things_that_are_shorter_than_a_sample_are_told_apart() {
        // Two things of 0.6 and 0.3 of a sample's length, and a pause, one after the other.
        let (values, lengths) = ([80.0, 10.0, 0.0], [0.6, 0.3, 0.35]);
        let cycle: f64 = lengths.iter().sum();
        let share = |from: f64, to: f64, thing: usize| -> f64 {
            let start: f64 = lengths[..thing].iter().sum();
            (0..4)
                .map(|turn| {
                    let begin = (from / cycle).floor() * cycle + f64::from(turn) * cycle - cycle + start;
                    (to.min(begin + lengths[thing]) - from.max(begin)).max(0.0)
                })
                .sum()
        };
        let rows: Vec<Vec<_>> = (0..40)
            .map(|sample| {
                let from = f64::from(sample);
                (0..3).map(|thing| (thing, share(from, from + 1.0, thing))).collect()
            })
            .collect();
        assert!(rows.iter().all(|row| (row.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9));
        let samples: Vec<f64> =
            rows.iter().map(|row| row.iter().map(|&(thing, share)| share * values[thing]).sum()).collect();
        let estimate = Mixture::new(rows, 3).estimate(&samples);
        for (thing, value) in values.iter().enumerate() {
            let (mean, error) = estimate.mean(&[(thing, 1.0)]);
            assert!((mean - value).abs() < 0.5 && error < 1.0, "{thing}: {mean} ± {error}, not {value}");
        }
        let (mean, _) = estimate.mean(&[(0, 0.6), (1, 0.3)]);
        assert!((mean - 51.0 / 0.9).abs() < 0.5, "{mean}");
    }

    #[test]
    fn things_in_constant_proportion_have_a_large_error_but_their_sum_a_small_one() {
        let rows = vec![vec![(0, 0.5), (1, 0.5)]; 100];
        let estimate = Mixture::new(rows, 2).estimate(&[40.0; 100]);
        let (_, error) = estimate.mean(&[(0, 1.0)]);
        assert!(error > 5.0, "{error}");
        let (mean, error) = estimate.mean(&[(0, 0.5), (1, 0.5)]);
        assert!((mean - 40.0).abs() < 0.1 && error < 1.0, "{mean} ± {error}");
    }

    proptest! {
        #[test]
        fn estimates_are_finite_and_not_negative(
            rows in prop::collection::vec(prop::collection::vec((0_usize..6, 0.0..1.0), 0..5), 0..40),
            values in prop::collection::vec(0.0..1e12, 40),
        ) {
            let samples = &values[..rows.len()];
            let estimate = Mixture::new(rows, 6).estimate(samples);
            for thing in 0..6 {
                let (mean, error) = estimate.mean(&[(thing, 1.0)]);
                prop_assert!(mean.is_finite() && mean >= 0.0 && error.is_finite(), "{} {}", mean, error);
            }
        }
    }
}
