//! Statistics of durations.

use super::quantile::quantile;
use std::time::Duration;

/// Statistics of some durations: their number, sum, mean, spread and extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DurationStats {
    /// The number of durations. All else is zero if there are none.
    pub count: u64,
    /// The sum.
    pub total: Duration,
    /// The mean.
    pub mean: Duration,
    /// The standard deviation of a sample, by `count - 1`; zero for a single duration.
    pub deviation: Duration,
    /// The shortest.
    pub shortest: Duration,
    /// The median; of an even number, the mean of the middle two.
    pub median: Duration,
    /// The longest.
    pub longest: Duration,
}

impl DurationStats {
    /// Returns the statistics of durations in any order.
    pub(super) fn new(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut sorted: Vec<_> = durations.into_iter().collect();
        sorted.sort_unstable();
        let (Some(&shortest), Some(&longest)) = (sorted.first(), sorted.last()) else { return Self::default() };
        let (count, total) = (sorted.len() as u64, sorted.iter().sum());
        let squares = sorted.iter().fold(0, |sum: u128, &duration| sum.saturating_add(square(duration)));
        Self {
            count,
            total,
            mean: total.div_f64(count as f64),
            deviation: standard_deviation(count, total, squares),
            shortest,
            median: quantile(&sorted, 0.5).unwrap_or_default(),
            longest,
        }
    }
}

/// Returns the square of a duration's nanoseconds.
pub(crate) fn square(duration: Duration) -> u128 {
    duration.as_nanos().saturating_mul(duration.as_nanos())
}

/// Returns the standard deviation of a sample, from the sum and the sum of the squares of its durations.
pub(crate) fn standard_deviation(count: u64, total: Duration, squares: u128) -> Duration {
    // Integers, as the difference of two large sums of floating-point numbers would be mostly error.
    let spread = squares.saturating_mul(count.into()).saturating_sub(square(total));
    let pairs = count as f64 * count.saturating_sub(1) as f64;
    if pairs > 0.0 { Duration::from_nanos((spread as f64 / pairs).sqrt().round() as u64) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use super::DurationStats;
    use std::time::Duration;

    #[test]
    fn statistics_of_few_durations() {
        let nanos = Duration::from_nanos;
        let stats = DurationStats::new([9, 2, 4, 4, 4, 5, 5, 7].map(nanos));
        let expected = DurationStats {
            count: 8,
            total: nanos(40),
            mean: nanos(5),
            deviation: nanos(2), // The root of 32 / 7.
            shortest: nanos(2),
            median: nanos(5), // Between 4 and 5, rounded.
            longest: nanos(9),
        };
        assert_eq!(stats, expected);
        let one = DurationStats::new([nanos(7)]);
        assert_eq!((one.mean, one.deviation, one.median), (nanos(7), nanos(0), nanos(7)));
        assert_eq!(DurationStats::new([]), DurationStats::default());
    }

    #[test]
    fn long_durations_that_differ_little() {
        let day = Duration::from_secs(86_400);
        let stats = DurationStats::new([day, day + Duration::from_nanos(20)]);
        assert_eq!(stats.deviation, Duration::from_nanos(14));
    }
}
