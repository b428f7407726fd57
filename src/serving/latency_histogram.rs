//! A histogram of durations.

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _, ser::SerializeStruct};
use std::{fmt, time::Duration};

/// The durations of all requests, as a histogram: percentiles are within 0.4 % of the exact ones, and the number, the
/// sum and the maximum are exact.
///
/// It takes 36 KB, however many durations there are. Histograms of several threads, processes or ranks can be
/// [merged](Self::merge) without a further error. They are read back from what was serialized, such as lines of a
/// [`RequestLog`](super::RequestLog).
///
/// ```
/// use kernspan::serving::LatencyHistogram;
/// use std::time::Duration;
///
/// let latencies: LatencyHistogram = (1..=1000).map(Duration::from_micros).collect();
/// let p99 = latencies.percentile(99.0).unwrap();
/// assert!(p99.abs_diff(Duration::from_micros(990)) < Duration::from_micros(4));
/// assert_eq!(latencies.max(), Some(Duration::from_millis(1)));
/// ```
#[derive(Clone, Default)]
pub struct LatencyHistogram {
    /// Nanoseconds; made with the first duration.
    counts: Option<Histogram<u64>>,
    count: u64,
    sum: u128,
    max: u64,
    /// Durations for which there was no memory.
    lost: u64,
}

impl LatencyHistogram {
    /// The percentiles that reports have.
    pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];
    /// Two significant digits: a bucket is at most 1/128 of its values wide, and its middle stands for them.
    const DIGITS: u8 = 2;

    /// Adds a duration.
    pub fn add(&mut self, duration: Duration) {
        self.add_nanos(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn add_nanos(&mut self, nanos: u64) {
        self.count += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
        if self.counts.is_none() {
            self.counts = Self::empty();
        }
        if self.counts.as_mut().is_none_or(|counts| counts.record(nanos).is_err()) {
            self.lost += 1;
        }
    }

    /// Returns a histogram that need not grow for durations of up to an hour, so that a thread that adds up its own
    /// requests allocates nothing.
    fn empty() -> Option<Histogram<u64>> {
        const HOUR: u64 = 3_600_000_000_000;
        let mut counts = Histogram::new_with_bounds(1, HOUR, Self::DIGITS).ok()?;
        counts.auto(true);
        Some(counts)
    }

    /// Adds all durations of another histogram.
    ///
    /// The log of several processes, or of several minutes, is merged so:
    ///
    /// ```
    /// use kernspan::serving::LatencyHistogram;
    /// # use kernspan::{Profiler, serving::RequestLog};
    /// # use tracing_subscriber::prelude::*;
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("requests.jsonl");
    /// # for _ in 0..2 {
    /// #     let log = RequestLog::to_file(&path);
    /// #     let (layer, profiler) = Profiler::builder().request_on("request").request_log(log).build()?;
    /// #     tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
    /// #         drop(tracing::info_span!("request"));
    /// #     });
    /// #     profiler.finish()?;
    /// # }
    ///
    /// let mut latencies = LatencyHistogram::default();
    /// for line in std::fs::read_to_string(path)?.lines() {
    ///     let mut line: serde_json::Value = serde_json::from_str(line)?;
    ///     latencies.merge(&serde_json::from_value(line["requests"][0]["total"]["latency"].take())?);
    /// }
    /// println!("p99 of {} requests: {:?}", latencies.count(), latencies.percentile(99.0));
    /// # assert_eq!(latencies.count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
        self.lost = self.lost.saturating_add(other.lost);
        match (&mut self.counts, &other.counts) {
            (Some(counts), Some(others)) => {
                if counts.add(others).is_err() {
                    self.lost = self.lost.saturating_add(others.len());
                }
            }
            (None, others) => self.counts.clone_from(others),
            (Some(_), None) => {}
        }
    }

    /// Returns the durations that were added since this histogram was a copy of `earlier`. Their maximum is that of a
    /// bucket, within 0.4 %, unless it is that of all.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut since = self.clone();
        since.count = self.count.saturating_sub(earlier.count);
        since.sum = self.sum.saturating_sub(earlier.sum);
        since.lost = self.lost.saturating_sub(earlier.lost);
        if let (Some(counts), Some(before)) = (&mut since.counts, &earlier.counts)
            && counts.subtract(before).is_ok()
            && self.max == earlier.max
        {
            since.max = counts.median_equivalent(counts.max()).min(self.max);
        }
        since
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean, which is exact; `None` if there is none.
    pub fn mean(&self) -> Option<Duration> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }

    /// Returns the sum, which is exact.
    pub fn sum(&self) -> Duration {
        Duration::new(
            u64::try_from(self.sum / 1_000_000_000).unwrap_or(u64::MAX),
            u32::try_from(self.sum % 1_000_000_000).unwrap_or(0),
        )
    }

    /// Returns the longest duration; `None` if there is none.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(Duration::from_nanos(self.max))
    }

    /// Returns the duration that so many percent of all do not exceed, such as 99.9; `None` if there is none. Of a
    /// hundred durations, the 99th percentile is the 99th by rank.
    pub fn percentile(&self, percent: f64) -> Option<Duration> {
        let counts = self.counts.as_ref().filter(|counts| !counts.is_empty())?;
        if percent >= 100.0 {
            return self.max();
        }
        let nanos = counts.median_equivalent(counts.value_at_percentile(percent.max(0.0)));
        Some(Duration::from_nanos(nanos.min(self.max)))
    }

    /// Returns how many durations are at most this long, within the width of a bucket.
    pub fn count_at_most(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.counts.as_ref().map_or(0, |counts| counts.count_between(0, limit))
    }

    /// Returns the buckets that are not empty in ascending order: the middle of each, and the number of its durations.
    /// All histograms have the same buckets.
    ///
    /// ```
    /// use kernspan::serving::LatencyHistogram;
    /// use std::time::Duration;
    ///
    /// let latencies: LatencyHistogram = [10, 20, 20, 400].map(Duration::from_millis).into_iter().collect();
    /// let short = latencies.buckets().take_while(|(middle, _)| *middle < Duration::from_millis(50));
    /// assert_eq!(short.map(|(_, count)| count).sum::<u64>(), 3);
    /// ```
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.bucket_nanos().map(|(nanos, count)| (Duration::from_nanos(nanos), count))
    }

    fn bucket_nanos(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().flat_map(|counts| {
            let middle = |value| counts.median_equivalent(value);
            counts.iter_recorded().map(move |bucket| (middle(bucket.value_iterated_to()), bucket.count_at_value()))
        })
    }

    /// Returns how many durations are missing from the percentiles, as there was no memory for a larger histogram.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Extend<Duration> for LatencyHistogram {
    fn extend<I: IntoIterator<Item = Duration>>(&mut self, durations: I) {
        durations.into_iter().for_each(|duration| self.add(duration));
    }
}

impl FromIterator<Duration> for LatencyHistogram {
    fn from_iter<I: IntoIterator<Item = Duration>>(durations: I) -> Self {
        let mut histogram = Self::default();
        histogram.extend(durations);
        histogram
    }
}

impl fmt::Debug for LatencyHistogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percentiles = Self::PERCENTILES.map(|percent| (percent, self.percentile(percent)));
        f.debug_struct("LatencyHistogram").field("count", &self.count).field("percentiles", &percentiles).finish()
    }
}

impl Serialize for LatencyHistogram {
    /// Writes the number, times in seconds, and what histograms are merged by, in nanoseconds: the sum, and for each
    /// bucket its middle and its number.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let mut fields = serializer.serialize_struct("LatencyHistogram", 10)?;
        fields.serialize_field("count", &self.count)?;
        fields.serialize_field("mean", &seconds(self.mean()))?;
        for (name, percent) in ["p50", "p90", "p95", "p99", "p99_9"].into_iter().zip(Self::PERCENTILES) {
            fields.serialize_field(name, &seconds(self.percentile(percent)))?;
        }
        fields.serialize_field("max", &seconds(self.max()))?;
        fields.serialize_field("sum_ns", &u64::try_from(self.sum).unwrap_or(u64::MAX))?;
        fields.serialize_field("buckets_ns", &self.bucket_nanos().collect::<Vec<_>>())?;
        fields.end()
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    /// Reads what was serialized. The percentiles are those of the buckets.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let SerializedHistogram { count, max, sum_ns, buckets_ns } = Deserialize::deserialize(deserializer)?;
        let max = Duration::try_from_secs_f64(max.unwrap_or(0.0)).map_err(D::Error::custom)?;
        let max = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        let mut counts = if buckets_ns.is_empty() { None } else { Self::empty() };
        let (mut lost, mut unaccounted) = (0, count);
        for (nanos, in_bucket) in buckets_ns {
            let Some(left) = unaccounted.checked_sub(in_bucket) else {
                return Err(D::Error::custom(format_args!("the buckets have more durations than the {count} of all")));
            };
            unaccounted = left;
            if counts.as_mut().is_none_or(|counts| counts.record_n(nanos, in_bucket).is_err()) {
                lost += in_bucket;
            }
        }
        // Seconds have 52 binary digits after the first.
        let at_most = max.saturating_add(1 + (max >> 52));
        if counts.as_ref().is_some_and(|counts| counts.lowest_equivalent(counts.max()) > at_most) {
            return Err(D::Error::custom(format_args!("a bucket is beyond the maximum, {max} ns")));
        }
        Ok(Self { counts, count, sum: sum_ns.into(), max, lost: lost + unaccounted })
    }
}

/// The fields of a serialized histogram that are not computed from others.
#[derive(Deserialize)]
struct SerializedHistogram {
    count: u64,
    /// Seconds.
    max: Option<f64>,
    sum_ns: u64,
    /// Nanoseconds, and how many durations are in the bucket that has them.
    buckets_ns: Vec<(u64, u64)>,
}

#[cfg(test)]
mod tests;
