//! The settings for hardware counters of GPUs.

use crate::trace::{GpuMetric, MetricMeaning};
use std::time::Duration;

/// The hardware counters of GPUs to sample while windows are open: see
/// [`ProfilerBuilder::counters`](crate::ProfilerBuilder::counters).
///
/// ```
/// use kernspan::{Counters, Profiler};
/// use std::time::Duration;
///
/// let counters = Counters::default().every(Duration::from_micros(500));
/// let (layer, profiler) = Profiler::builder().counters(counters).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "pass it to `ProfilerBuilder::counters`"]
pub struct Counters {
    pub(crate) interval: Duration,
    pub(crate) metrics: Vec<GpuMetric>,
}

impl Counters {
    /// The time between two samples by default. Decoding a sample takes about 60 µs on a core of its own.
    pub const INTERVAL: Duration = Duration::from_millis(1);
    /// The shortest time between two samples: decoding then takes half of a core, and at a tenth of that cannot keep
    /// up.
    pub const MIN_INTERVAL: Duration = Duration::from_micros(100);
    /// The longest time between two samples.
    pub const MAX_INTERVAL: Duration = Duration::from_secs(1);

    /// NVIDIA's names of the default metrics, which fit on the counters together.
    const DEFAULT: [(MetricMeaning, &'static str); 8] = [
        (MetricMeaning::SmActive, "sm__cycles_active.avg.pct_of_peak_sustained_elapsed"),
        // The variant for sampling: the other takes more of the hardware's buffer.
        (MetricMeaning::TensorActive, "sm__pipe_tensor_cycles_active_realtime.avg.pct_of_peak_sustained_elapsed"),
        (MetricMeaning::DramActive, "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
        (MetricMeaning::DramRead, "dram__bytes_read.sum.per_second"),
        (MetricMeaning::DramWrite, "dram__bytes_write.sum.per_second"),
        (MetricMeaning::PcieReceived, "pcie__read_bytes.sum.per_second"),
        (MetricMeaning::PcieSent, "pcie__write_bytes.sum.per_second"),
        (MetricMeaning::SmClock, "sm__cycles_elapsed.avg.per_second"),
    ];

    /// Sets the time between two samples. By default, it is [`INTERVAL`](Self::INTERVAL). Less than
    /// [`MIN_INTERVAL`](Self::MIN_INTERVAL) is widened to that, and so is an interval at which the GPU's buffer
    /// overflows; [`GpuCounters::interval`](crate::trace::GpuCounters::interval) says what was used.
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Adds a metric by the name that `ncu --query-metrics` prints, with a suffix such as
    /// `.avg.pct_of_peak_sustained_elapsed`. All metrics together must fit on the GPU's counters in one pass; if this
    /// one does not, it is left out, and [`GpuCounters::problem`](crate::trace::GpuCounters::problem) names it.
    pub fn metric(mut self, name: impl Into<String>) -> Self {
        self.metrics.push(GpuMetric { name: name.into(), meaning: MetricMeaning::Custom });
        self
    }

    /// Removes all metrics, so that only those added afterwards are measured. Reports and findings use the default
    /// ones.
    pub fn without_defaults(mut self) -> Self {
        self.metrics.clear();
        self
    }

    /// Returns why the settings cannot be used, if so.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.interval {
            Duration::ZERO => Err("samples cannot be 0 s apart".to_owned()),
            interval if interval > Self::MAX_INTERVAL => Err(format!(
                "{interval:?} between samples is more than {:?}, the most that there may be",
                Self::MAX_INTERVAL
            )),
            _ if self.metrics.is_empty() => Err("there is no metric to measure".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Default for Counters {
    /// Returns the default metrics, sampled every millisecond: SM and tensor activity, DRAM and PCIe traffic, the SM
    /// clock.
    fn default() -> Self {
        let metric = |(meaning, name): (MetricMeaning, &str)| GpuMetric { name: name.to_owned(), meaning };
        Self { interval: Self::INTERVAL, metrics: Self::DEFAULT.map(metric).into() }
    }
}
