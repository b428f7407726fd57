//! Quantiles: the one definition of medians and percentiles.

use std::time::Duration;

/// A value between two others.
pub(crate) trait Between: Copy {
    /// Returns the value at a part of the way to another one, which is not less.
    fn between(self, other: Self, part: f64) -> Self;
}

/// Returns a quantile of sorted values, such as the median for a part of 0.5.
///
/// It lies between the two values that are nearest by rank, as NumPy's `percentile` has it: the median of an even
/// number of values is the mean of the middle two.
pub(crate) fn quantile<T: Between>(sorted: &[T], part: f64) -> Option<T> {
    at_rank(sorted.len(), rank(sorted.len(), part), |index| sorted.get(index).copied())
}

/// Returns the median, or the lower of both in the middle: of two steps, the slow one may be the first of the run.
pub(super) fn lower_median<T: Ord>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    let middle = values.len().checked_sub(1)? / 2;
    values.sort_unstable();
    Some(values.swap_remove(middle))
}

/// Returns the rank of a quantile of so many values, from 0.
pub(crate) fn rank(count: usize, part: f64) -> f64 {
    part * count.saturating_sub(1) as f64
}

/// Returns the value at a rank, between those of the nearest indices.
pub(crate) fn at_rank<T: Between>(count: usize, rank: f64, value: impl Fn(usize) -> Option<T>) -> Option<T> {
    let rank = rank.clamp(0.0, count.saturating_sub(1) as f64);
    let below = value(rank.floor() as usize)?;
    Some(if rank.fract() > 0.0 { below.between(value(rank.ceil() as usize)?, rank.fract()) } else { below })
}

impl Between for u64 {
    fn between(self, other: Self, part: f64) -> Self {
        self.saturating_add((other.saturating_sub(self) as f64 * part).round() as u64)
    }
}

impl Between for Duration {
    fn between(self, other: Self, part: f64) -> Self {
        let nanos = u64::try_from(other.saturating_sub(self).as_nanos()).unwrap_or(u64::MAX);
        self.saturating_add(Self::from_nanos(0.between(nanos, part)))
    }
}

#[cfg(test)]
mod tests {
    use super::quantile;
    use std::time::Duration;

    #[test]
    fn quantiles_are_between_the_nearest_values() {
        let values = [10, 20, 30, 50];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|part| quantile(&values, part)), [10, 25, 35, 50].map(Some));
        assert_eq!((quantile::<u64>(&[], 0.5), quantile(&[7], 0.9)), (None, Some(7)));
        assert_eq!(quantile(&[u64::MAX - 2, u64::MAX], 0.5), Some(u64::MAX - 1));
        let millis = [1, 2, 4, 9].map(Duration::from_millis);
        assert_eq!(quantile(&millis, 0.5), Some(Duration::from_millis(3)));
        assert_eq!(quantile(&millis[..3], 0.5), Some(Duration::from_millis(2)));
    }
}
