//! The times of calls, of which percentiles are asked, in bounded memory.

use crate::{
    analysis::{SortedMap, at_rank, quantile, rank},
    trace::{Span, Timestamp},
};
use std::time::Duration;

/// The time of one call: one enter of a span, or several that belong together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CallTime {
    /// The number of enters.
    enters: u64,
    /// The time in which the span was entered.
    pub(super) busy: Duration,
    /// From the first enter to the last exit.
    extent: Option<(Timestamp, Timestamp)>,
}

impl CallTime {
    /// Returns the time of a call with one enter.
    pub(super) fn of(span: Span<'_>) -> Self {
        Self { enters: 1, busy: span.duration(), extent: Some((span.start(), span.end())) }
    }

    /// Adds an enter, which adds `busy` to the time in which the span was entered.
    pub(super) fn add(&mut self, span: Span<'_>, busy: Duration) {
        self.enters += 1;
        self.busy += busy;
        let (start, end) = self.extent.unwrap_or((span.start(), span.end()));
        self.extent = Some((start.min(span.start()), end.max(span.end())));
    }

    /// Returns the time from the first enter to the last exit.
    pub(super) fn latency(&self) -> Duration {
        self.extent.map_or(Duration::ZERO, |(start, end)| end.since(start))
    }
}

/// The times of calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallTimes {
    /// The time in which the span was entered, of each call.
    busy: Durations,
    /// The time from the first enter to the last exit of each call, if that differs from `busy` for one of them.
    latency: Option<Durations>,
}

impl CallTimes {
    /// Adds a call.
    pub(super) fn add(&mut self, call: &CallTime) {
        if call.enters > 1 && self.latency.is_none() {
            self.latency = Some(self.busy.clone());
        }
        if let Some(latency) = &mut self.latency {
            latency.add(call.latency());
        }
        self.busy.add(call.busy);
    }

    /// Adds all calls of other times.
    pub(super) fn merge(&mut self, other: &Self) {
        if other.latency.is_some() && self.latency.is_none() {
            self.latency = Some(self.busy.clone());
        }
        if let Some(latency) = &mut self.latency {
            latency.merge(other.latency.as_ref().unwrap_or(&other.busy));
        }
        self.busy.merge(&other.busy);
    }

    /// Returns the time in which the span was entered, of each call.
    pub(super) fn busy(&self) -> &Durations {
        &self.busy
    }

    /// Returns the time from the first enter to the last exit of each call, if a call was entered more than once.
    pub(super) fn latency(&self) -> Option<&Durations> {
        self.latency.as_ref()
    }
}

/// A collection of durations that percentiles are asked of, in bounded memory.
///
/// Up to [`EXACT`](Self::EXACT) durations are kept as they are. Past that only a histogram is kept, with buckets that
/// are 1/64 as wide as the power of two that they begin after. A percentile is then the middle of its bucket, which is
/// less than 1 % from the exact one.
#[derive(Clone, Debug)]
pub(super) enum Durations {
    /// All durations, in nanoseconds and in no order.
    Exact(Vec<u64>),
    /// The number of durations in each bucket.
    Histogram(SortedMap<u16, u64>),
}

impl Default for Durations {
    fn default() -> Self {
        Self::Exact(Vec::new())
    }
}

impl Durations {
    /// The number of durations that are kept as they are.
    pub(super) const EXACT: usize = 128;
    /// The number of bits of a duration that its bucket keeps, after the highest one.
    const BITS: u32 = 6;

    /// Adds a duration.
    pub(super) fn add(&mut self, duration: Duration) {
        self.add_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), 1);
    }

    /// Adds all durations of another collection.
    pub(super) fn merge(&mut self, other: &Self) {
        match other {
            Self::Exact(values) => values.iter().for_each(|&nanos| self.add_nanos(nanos, 1)),
            Self::Histogram(counts) => {
                self.coarsen();
                counts.iter().for_each(|&(bucket, count)| self.add_nanos(middle(bucket), count));
            }
        }
    }

    /// Returns a percentile, between the two durations that are nearest by rank, or `None` if there are no durations.
    pub(super) fn percentile(&self, percent: f64) -> Option<Duration> {
        let part = percent / 100.0;
        let nanos = match self {
            Self::Exact(values) => {
                let mut sorted = values.clone();
                sorted.sort_unstable();
                quantile(&sorted, part)?
            }
            Self::Histogram(counts) => {
                let count = counts.values().sum::<u64>() as usize;
                let value = |index: usize| {
                    let mut below = 0;
                    let found = counts.iter().find(|&&(_, count)| {
                        below += count;
                        (index as u64) < below
                    });
                    Some(middle(found?.0))
                };
                at_rank(count, rank(count, part), value)?
            }
        };
        Some(Duration::from_nanos(nanos))
    }

    fn add_nanos(&mut self, nanos: u64, count: u64) {
        if matches!(self, Self::Exact(values) if values.len() >= Self::EXACT) {
            self.coarsen();
        }
        match self {
            Self::Exact(values) => values.push(nanos),
            Self::Histogram(counts) => *counts.or_default(bucket(nanos)) += count,
        }
    }

    /// Makes a histogram of the durations, unless they are one already.
    fn coarsen(&mut self) {
        if let Self::Exact(values) = self {
            let mut counts = SortedMap::default();
            values.iter().for_each(|&nanos| *counts.or_default(bucket(nanos)) += 1);
            *self = Self::Histogram(counts);
        }
    }
}

/// Returns the bucket of a number of nanoseconds: the position of its highest bit, and the bits after that.
fn bucket(nanos: u64) -> u16 {
    let shift = nanos.checked_ilog2().unwrap_or(0).saturating_sub(Durations::BITS);
    ((u64::from(shift) << Durations::BITS) + (nanos >> shift)) as u16
}

/// Returns the number of nanoseconds in the middle of a bucket.
fn middle(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    // The bits that are kept include the highest one, which counts as one more in the upper part.
    let shift = (bucket >> Durations::BITS).saturating_sub(1);
    let low = (bucket - (shift << Durations::BITS)) << shift;
    low + ((1_u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::{Durations, bucket, middle, quantile};
    use proptest::prelude::*;
    use std::time::Duration;

    fn durations(nanos: &[u64]) -> Durations {
        let mut durations = Durations::default();
        nanos.iter().for_each(|&nanos| durations.add(Duration::from_nanos(nanos)));
        durations
    }

    /// Returns the exact percentile.
    fn exact(nanos: &[u64], percent: f64) -> u64 {
        let mut sorted = nanos.to_vec();
        sorted.sort_unstable();
        quantile(&sorted, percent / 100.0).unwrap()
    }

    /// Durations of all magnitudes, from nanoseconds to hours.
    fn any_nanos() -> impl Strategy<Value = u64> {
        (0_u32..44, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1) | 1 << bits)
    }

    #[test]
    fn there_are_no_percentiles_of_nothing() {
        assert_eq!(Durations::default().percentile(50.0), None);
    }

    #[test]
    fn every_bucket_holds_its_middle() {
        for nanos in [0, 1, 63, 64, 127, 128, 129, 1 << 20, u64::MAX] {
            assert_eq!(bucket(middle(bucket(nanos))), bucket(nanos), "{nanos}");
        }
        assert!(usize::from(bucket(u64::MAX)) < 64 * 64);
    }

    proptest! {
        #[test]
        fn percentiles_of_few_durations_are_exact(
            nanos in prop::collection::vec(any_nanos(), 1..=Durations::EXACT),
            percent in 0.1_f64..=100.0,
        ) {
            let expected = Duration::from_nanos(exact(&nanos, percent));
            prop_assert_eq!(durations(&nanos).percentile(percent), Some(expected));
        }

        #[test]
        fn percentiles_of_many_durations_are_within_a_percent(
            nanos in prop::collection::vec(any_nanos(), 1..600),
            split in any::<prop::sample::Index>(),
            percent in prop_oneof![Just(50.0), Just(95.0), 0.1_f64..=100.0],
        ) {
            let exact = exact(&nanos, percent) as f64;
            let (left, right) = nanos.split_at(split.index(nanos.len()));
            let mut merged = durations(left);
            merged.merge(&durations(right));
            for found in [durations(&nanos), merged] {
                let found = found.percentile(percent).unwrap().as_nanos() as f64;
                prop_assert!((found - exact).abs() <= 0.01 * exact, "{found} instead of {exact}");
            }
        }
    }
}
