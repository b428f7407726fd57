//! Floating-point operations, and the time they take at the peak of a GPU.

use std::time::Duration;

/// A number of floating-point operations, and the time that GPUs take for them at their peak.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Flops {
    pub(crate) count: u64,
    /// The time at the peak in seconds. It is not rounded, as small operations take less than a nanosecond.
    ideal_seconds: f64,
    /// Whether the peak is not known for some of the operations.
    peak_unknown: bool,
}

impl Flops {
    /// Returns operations that a GPU does at `peak` per second, if that is known.
    pub(super) fn new(count: u64, peak: Option<f64>) -> Self {
        let ideal_seconds = peak.map_or(0.0, |peak| count as f64 / peak);
        Self { count, ideal_seconds, peak_unknown: count > 0 && peak.is_none() }
    }

    /// Adds other operations.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.ideal_seconds += other.ideal_seconds;
        self.peak_unknown |= other.peak_unknown;
    }

    /// Returns whether the peak is not known for some of the operations.
    pub(super) fn is_peak_unknown(&self) -> bool {
        self.peak_unknown
    }

    /// Returns the time that the operations take at the peak, if that is known for all of them.
    pub(crate) fn ideal(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.ideal_seconds).ok().filter(|_| !self.peak_unknown)
    }

    /// Returns the operations per second, or `None` if there are none or `time` is zero.
    pub(crate) fn per_second(&self, time: Duration) -> Option<f64> {
        (self.count > 0 && !time.is_zero()).then(|| self.count as f64 / time.as_secs_f64())
    }

    /// Returns the time at the peak in percent of `time`, or `None` if that is not known.
    pub(crate) fn percent_of_peak(&self, time: Duration) -> Option<f64> {
        let known = self.count > 0 && !self.peak_unknown && !time.is_zero();
        known.then(|| 100.0 * self.ideal_seconds / time.as_secs_f64())
    }
}
