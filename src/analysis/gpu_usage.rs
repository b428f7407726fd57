//! The usage of a GPU, and the bottleneck that follows from it.

use super::{flops::Flops, step_parts::StepParts};
use crate::trace::DeviceId;
use std::{fmt, time::Duration};

/// The usage of one GPU in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepGpu {
    /// The number of the step in the run, counted from 0.
    pub step: u64,
    /// The GPU.
    pub device: DeviceId,
    /// The usage of the GPU in the step.
    pub usage: GpuUsage,
    /// The median time from an API call to the start of its work.
    pub median_delay: Option<Duration>,
    /// The most bytes of the GPU's memory that were in use in the step: see
    /// [`Allocation::in_use`](crate::trace::Allocation::in_use).
    ///
    /// It is known if allocations were recorded, and one was made in the step or before it in the window.
    pub peak_memory: Option<u64>,
}

/// The usage of a GPU in one step or in many: how long it was busy, and what it waited for.
///
/// A step lasts from the end of all that came before it until the host and the GPU are done with it: see
/// [`StepInterval`](super::StepInterval). Its parts, such as `busy` and `waiting`, are those of
/// [`StepParts`](super::StepParts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GpuUsage {
    /// The time of the step.
    pub duration: Duration,
    /// The part of `duration` in which the GPU did anything. Work that ran at the same time is counted once.
    pub busy: Duration,
    /// The rest of `duration`.
    pub idle: Duration,
    /// The number of gaps in which the GPU was idle.
    pub gaps: u64,
    /// The duration of the longest gap.
    pub longest_gap: Duration,
    /// The part of `idle` in which the GPU waited for the host, whose call for the work after the gap had not returned
    /// when the gap began. A gap that no work of the window follows is one of them, too.
    pub waiting: Duration,
    /// Where the time went: `busy`, `idle` and `waiting` are sums of these.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub parts: StepParts,
    /// The part of `duration` in which memory was copied, whether or not kernels ran at the same time.
    pub copying: Duration,
    /// Bytes copied by API calls of the step.
    pub copied: u64,
    /// The number of kernels launched in the step.
    pub kernels: u64,
    /// The number of kernels, copies and fills launched in the step whose API calls were recorded.
    pub launches: u64,
    /// The time from the API call to the start of its work, added up over `launches`. It is long if the host runs ahead
    /// and work queues up.
    pub delay: Duration,
    /// The longest time from an API call to the start of its work.
    pub longest_delay: Duration,
    /// Floating-point operations of the step on all threads: those of each span that began in the step and states them,
    /// unless a span around it states them. `None` if several GPUs worked in the window, as it is not known which of
    /// them did the operations.
    pub flops: Option<u64>,
    /// The time that the GPU takes for `flops` at its [peak](crate::trace::Device::peak_flops), if that is known for
    /// all.
    pub ideal: Option<Duration>,
    /// The bottleneck of the step.
    pub verdict: Verdict,
}

/// The bottleneck of a step: the input, the host, the GPU, or none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// The GPU was idle for more than a tenth of the time, and for more than half of that it waited for data. Load data
    /// in advance, with more threads, or with less work.
    InputBound,
    /// The GPU was idle for more than a tenth of the time, and for more than half of that it waited for the host.
    /// Launch less often (larger batches, fused kernels, CUDA graphs), or have the host do less between launches.
    HostBound,
    /// The GPU was busy for nine tenths of the time or more. Only faster kernels make the step faster.
    GpuBound,
    /// None of the others: the GPU was idle although the host had asked for work, such as between short kernels or
    /// while it waited for an event of another stream.
    #[default]
    Balanced,
}

/// Returns `part` in percent of `all`, or 0 if `all` is zero.
pub(crate) fn percent_of(part: Duration, all: Duration) -> f64 {
    if all.is_zero() { 0.0 } else { 100.0 * part.as_secs_f64() / all.as_secs_f64() }
}

impl GpuUsage {
    /// Returns `busy` in percent of `duration`.
    pub fn busy_percent(&self) -> f64 {
        percent_of(self.busy, self.duration)
    }

    /// Returns `copying` in percent of `duration`.
    pub fn copying_percent(&self) -> f64 {
        percent_of(self.copying, self.duration)
    }

    /// Returns the mean time from an API call to the start of its work, or `None` if there are no launches.
    pub fn mean_delay(&self) -> Option<Duration> {
        (self.launches > 0).then(|| self.delay.div_f64(self.launches as f64))
    }

    /// Returns `flops` per second of `duration`, or `None` if there are none.
    pub fn flops_per_second(&self) -> Option<f64> {
        let flops = self.flops.filter(|&flops| flops > 0 && !self.duration.is_zero())?;
        Some(flops as f64 / self.duration.as_secs_f64())
    }

    /// Returns the model FLOPs utilisation (MFU): `ideal` in percent of `duration`. It is `None` if there are no
    /// operations, if the peak is not known, or if more operations are stated than the GPU can do.
    pub fn mfu(&self) -> Option<f64> {
        self.ideal_percent_of(self.duration)
    }

    /// Returns the MFU while the GPU was busy: `ideal` in percent of `busy`.
    pub fn busy_mfu(&self) -> Option<f64> {
        self.ideal_percent_of(self.busy)
    }

    fn ideal_percent_of(&self, time: Duration) -> Option<f64> {
        let ideal = self.ideal.filter(|_| self.flops > Some(0) && !time.is_zero() && !self.states_too_much())?;
        Some(percent_of(ideal, time).min(100.0))
    }

    /// Whether `flops` are more than the GPU can have done while it was busy.
    pub(crate) fn states_too_much(&self) -> bool {
        self.ideal.is_some_and(|ideal| percent_of(ideal, self.busy) > Flops::MOST_PERCENT)
    }

    /// Returns the usage in no step, a start for sums.
    pub(crate) fn zero() -> Self {
        Self { flops: Some(0), ideal: Some(Duration::ZERO), ..Self::default() }
    }

    /// Adds the usage in other steps.
    pub(crate) fn add(&mut self, other: &Self) {
        self.duration += other.duration;
        self.busy += other.busy;
        self.idle += other.idle;
        self.gaps += other.gaps;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.waiting += other.waiting;
        self.parts += other.parts;
        self.copying += other.copying;
        self.copied = self.copied.saturating_add(other.copied);
        self.kernels += other.kernels;
        self.launches += other.launches;
        self.delay += other.delay;
        self.longest_delay = self.longest_delay.max(other.longest_delay);
        self.flops = self.flops.zip(other.flops).map(|(flops, others)| flops.saturating_add(others));
        self.ideal = self.ideal.zip(other.ideal).map(|(ideal, others)| ideal.saturating_add(others));
        self.judge();
    }

    /// Computes the verdict from the other fields.
    pub(super) fn judge(&mut self) {
        self.verdict = if self.busy >= self.duration * 9 / 10 {
            Verdict::GpuBound
        } else if self.parts.input > self.idle / 2 {
            Verdict::InputBound
        } else if self.waiting > self.idle / 2 {
            Verdict::HostBound
        } else {
            Verdict::Balanced
        };
    }
}

impl Verdict {
    /// Returns `input-bound`, `host-bound`, `GPU-bound` or `balanced`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InputBound => "input-bound",
            Self::HostBound => "host-bound",
            Self::GpuBound => "GPU-bound",
            Self::Balanced => "balanced",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{GpuUsage, StepParts, Verdict};
    use std::time::Duration;

    fn verdict(duration: u64, busy: u64, waiting: u64) -> Verdict {
        verdict_with_input(duration, busy, waiting, 0)
    }

    fn verdict_with_input(duration: u64, busy: u64, waiting: u64, input: u64) -> Verdict {
        let [duration, busy, waiting, input] = [duration, busy, waiting, input].map(Duration::from_micros);
        let parts = StepParts { input, ..StepParts::default() };
        let mut usage = GpuUsage { duration, busy, idle: duration - busy, waiting, parts, ..GpuUsage::default() };
        usage.judge();
        usage.verdict
    }

    #[test]
    fn waiting_for_data_is_more_than_waiting_for_the_host() {
        assert_eq!(verdict_with_input(100, 50, 50, 25), Verdict::HostBound);
        assert_eq!(verdict_with_input(100, 50, 50, 26), Verdict::InputBound);
        assert_eq!(verdict_with_input(100, 90, 10, 10), Verdict::GpuBound);
    }

    #[test]
    fn a_step_is_bound_by_the_side_that_the_other_waits_for() {
        assert_eq!(verdict(100, 90, 10), Verdict::GpuBound);
        assert_eq!(verdict(100, 89, 6), Verdict::HostBound);
        assert_eq!(verdict(100, 0, 100), Verdict::HostBound);
        assert_eq!(verdict(100, 50, 25), Verdict::Balanced);
        assert_eq!(verdict(100, 50, 26), Verdict::HostBound);
    }
}
