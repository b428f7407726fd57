use std::{fmt, time::Duration};

/// How a GPU spent the time of a step, or of many.
///
/// Time is counted where it passed, launches where they were made: a kernel launched at a step's end that runs in the next one
/// is busy time of the next. Work launched before the window opened is not seen, so that its first step may look idler than
/// it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GpuUsage {
    /// The time from the step's beginning to its end on the host.
    pub duration: Duration,
    /// The part of it in which the GPU did anything. Work at the same time is counted once.
    pub busy: Duration,
    /// The rest of it.
    pub idle: Duration,
    /// In how many gaps the GPU was idle.
    pub gaps: u64,
    /// The longest of the gaps.
    pub longest_gap: Duration,
    /// The part of the idle time in which the GPU waited for the host: gaps that ended with work whose call of the API began
    /// after the gap had begun. A gap that no work of the window ended is one of them, as nothing had been asked for.
    pub waiting: Duration,
    /// The part of this waiting in which the thread that steps was in a span of the [input pipeline](crate::trace::InputStage), as one called `data`.
    pub input: Duration,
    /// The part of the time in which memory was being copied, whatever else was done beside it.
    pub copying: Duration,
    /// Bytes of the copies that the step's calls asked for.
    pub copied: u64,
    /// Kernels launched in the step.
    pub kernels: u64,
    /// Kernels, copies and fills that the step caused and whose call of the API was seen.
    pub launches: u64,
    /// The time from the call to the beginning of the work, of all these launches together. It is long where the host runs
    /// ahead and work queues up.
    pub delay: Duration,
    /// The longest of these times.
    pub longest_delay: Duration,
    /// Floating-point operations of the step, on all threads: of each span that began in it and says how many, unless one around
    /// it does. None where several GPUs worked in the window, as it is not known which of them did what.
    pub flops: Option<u64>,
    /// How long the GPU would take for these at its [peak](crate::trace::Device::peak_flops), if that is known for all of them.
    pub ideal: Option<Duration>,
    /// What the step's time hung on.
    pub verdict: Verdict,
}

/// What the time of a step hung on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Verdict {
    /// The GPU was idle for more than a tenth of the time, and for more than half of that it waited for data: load it in advance, with more threads,
    /// or have less to do for it.
    InputBound,
    /// The GPU was idle for more than a tenth of the time, and for more than half of that it waited for the host: launch less
    /// often (larger batches, fused kernels, CUDA graphs), or have the host do less between launches.
    HostBound,
    /// The GPU was busy for nine tenths of the time or more: only faster kernels make the step faster.
    GpuBound,
    /// Neither: the GPU was idle though work had been asked for, as between short kernels, or behind an event of another stream.
    #[default]
    Balanced,
}

/// How many percent of `all` the part is; none of nothing.
pub(crate) fn percent_of(part: Duration, all: Duration) -> f64 {
    if all.is_zero() { 0.0 } else { 100.0 * part.as_secs_f64() / all.as_secs_f64() }
}

impl GpuUsage {
    /// `busy` in percent of `duration`.
    pub fn busy_percent(&self) -> f64 {
        percent_of(self.busy, self.duration)
    }

    /// `copying` in percent of `duration`.
    pub fn copying_percent(&self) -> f64 {
        percent_of(self.copying, self.duration)
    }

    /// The mean time from a call to the beginning of its work.
    pub fn mean_delay(&self) -> Option<Duration> {
        (self.launches > 0).then(|| self.delay.div_f64(self.launches as f64))
    }

    /// Floating-point operations a second of `duration`, if there are any.
    pub fn flops_per_second(&self) -> Option<f64> {
        let flops = self.flops.filter(|&flops| flops > 0 && !self.duration.is_zero())?;
        Some(flops as f64 / self.duration.as_secs_f64())
    }

    /// Model FLOPs utilisation: `ideal` in percent of `duration`, if there are any operations and the peak is known.
    pub fn mfu(&self) -> Option<f64> {
        self.ideal_percent_of(self.duration)
    }

    /// The same while the GPU was busy: `ideal` in percent of `busy`.
    pub fn busy_mfu(&self) -> Option<f64> {
        self.ideal_percent_of(self.busy)
    }

    fn ideal_percent_of(&self, time: Duration) -> Option<f64> {
        let ideal = self.ideal.filter(|_| self.flops > Some(0) && !time.is_zero())?;
        Some(percent_of(ideal, time))
    }

    /// Of no step at all, to add others to.
    pub(crate) fn nothing() -> Self {
        Self { flops: Some(0), ideal: Some(Duration::ZERO), ..Self::default() }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.duration += other.duration;
        self.busy += other.busy;
        self.idle += other.idle;
        self.gaps += other.gaps;
        self.longest_gap = self.longest_gap.max(other.longest_gap);
        self.waiting += other.waiting;
        self.input += other.input;
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

    pub(crate) fn judge(&mut self) {
        self.verdict = if self.busy >= self.duration * 9 / 10 {
            Verdict::GpuBound
        } else if self.input > self.idle / 2 {
            Verdict::InputBound
        } else if self.waiting > self.idle / 2 {
            Verdict::HostBound
        } else {
            Verdict::Balanced
        };
    }
}

impl Verdict {
    /// `input-bound`, `host-bound`, `GPU-bound` or `balanced`.
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
    use super::{GpuUsage, Verdict};
    use std::time::Duration;

    fn verdict(duration: u64, busy: u64, waiting: u64) -> Verdict {
        verdict_with_input(duration, busy, waiting, 0)
    }

    fn verdict_with_input(duration: u64, busy: u64, waiting: u64, input: u64) -> Verdict {
        let [duration, busy, waiting, input] = [duration, busy, waiting, input].map(Duration::from_micros);
        let mut usage = GpuUsage { duration, busy, idle: duration - busy, waiting, input, ..GpuUsage::default() };
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
    fn a_step_hangs_on_whoever_keeps_the_other_waiting() {
        assert_eq!(verdict(100, 90, 10), Verdict::GpuBound);
        assert_eq!(verdict(100, 89, 6), Verdict::HostBound);
        assert_eq!(verdict(100, 0, 100), Verdict::HostBound);
        assert_eq!(verdict(100, 50, 25), Verdict::Balanced);
        assert_eq!(verdict(100, 50, 26), Verdict::HostBound);
    }
}
