//! Hardware counters of GPUs, sampled at a fixed interval: how busy were the SMs, the tensor cores and the memory?

use super::{DeviceId, Timestamp, Trace};
use std::{ops::Range, time::Duration};

/// The hardware counters of one GPU in one window: see
/// [`ProfilerBuilder::counters`](crate::ProfilerBuilder::counters).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuCounters {
    pub(crate) device: DeviceId,
    pub(crate) interval: Duration,
    pub(crate) metrics: Vec<GpuMetric>,
    /// The start and the end of each sample, in chronological order.
    pub(crate) times: Vec<(Timestamp, Timestamp)>,
    /// The values of each sample, in the order of the metrics.
    pub(crate) values: Vec<f64>,
    pub(crate) lost: u64,
    pub(crate) problem: Option<String>,
}

/// A quantity that a GPU's counters measure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GpuMetric {
    pub(crate) name: String,
    pub(crate) meaning: MetricMeaning,
}

/// The meaning of a [`GpuMetric`], for those that reports and findings use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum MetricMeaning {
    /// The share of time in which an SM had work, in percent, averaged over all SMs.
    SmActive,
    /// The share of time in which the tensor cores were busy, in percent.
    TensorActive,
    /// The bandwidth of the GPU's memory in use, in percent of its maximum.
    DramActive,
    /// The bytes read from the GPU's memory, per second.
    DramRead,
    /// The bytes written to the GPU's memory, per second.
    DramWrite,
    /// The bytes that the GPU received over PCIe, per second.
    PcieReceived,
    /// The bytes that the GPU sent over PCIe, per second.
    PcieSent,
    /// The frequency of the SMs' clock, in hertz.
    SmClock,
    /// A metric that the program named.
    Custom,
}

impl MetricMeaning {
    const ALL: [Self; 9] = [
        Self::SmActive,
        Self::TensorActive,
        Self::DramActive,
        Self::DramRead,
        Self::DramWrite,
        Self::PcieReceived,
        Self::PcieSent,
        Self::SmClock,
        Self::Custom,
    ];

    /// A short name, as files and metrics have it: `sm_active`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SmActive => "sm_active",
            Self::TensorActive => "tensor_active",
            Self::DramActive => "dram_active",
            Self::DramRead => "dram_read",
            Self::DramWrite => "dram_write",
            Self::PcieReceived => "pcie_received",
            Self::PcieSent => "pcie_sent",
            Self::SmClock => "sm_clock",
            Self::Custom => "custom",
        }
    }

    /// Returns the meaning of this name. A name that is not known is a metric that a program named.
    #[cfg_attr(
        not(any(feature = "read", all(feature = "cuda", target_os = "linux"))),
        allow(dead_code, reason = "only files have names")
    )]
    pub(crate) fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|meaning| meaning.as_str() == name).unwrap_or(Self::Custom)
    }
}

impl GpuMetric {
    /// NVIDIA's name of the metric, as `ncu` takes it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The meaning.
    pub fn meaning(&self) -> MetricMeaning {
        self.meaning
    }

    /// A readable name: `SM active`, or NVIDIA's name of a metric that the program named.
    pub fn label(&self) -> &str {
        match self.meaning {
            MetricMeaning::SmActive => "SM active",
            MetricMeaning::TensorActive => "Tensor active",
            MetricMeaning::DramActive => "DRAM active",
            MetricMeaning::DramRead => "DRAM read",
            MetricMeaning::DramWrite => "DRAM write",
            MetricMeaning::PcieReceived => "PCIe received",
            MetricMeaning::PcieSent => "PCIe sent",
            MetricMeaning::SmClock => "SM clock",
            MetricMeaning::Custom => &self.name,
        }
    }

    /// The unit, as the Unified Code for Units of Measure writes it: `%`, `By/s`, `Hz`. It is empty if unknown.
    pub fn unit(&self) -> &'static str {
        match self.meaning {
            MetricMeaning::SmActive | MetricMeaning::TensorActive | MetricMeaning::DramActive => "%",
            MetricMeaning::DramRead
            | MetricMeaning::DramWrite
            | MetricMeaning::PcieReceived
            | MetricMeaning::PcieSent => "By/s",
            MetricMeaning::SmClock => "Hz",
            MetricMeaning::Custom if self.name.contains(".pct") => "%",
            MetricMeaning::Custom => "",
        }
    }
}

impl GpuCounters {
    /// The GPU.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The time between two samples, as it was used: a requested interval that cannot be sustained is widened.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// The metrics.
    pub fn metrics(&self) -> &[GpuMetric] {
        &self.metrics
    }

    /// The samples, in chronological order: the time that each covers, and its values in the order of the
    /// [metrics](Self::metrics).
    pub fn samples(&self) -> impl ExactSizeIterator<Item = (Range<Timestamp>, &[f64])> {
        let values = self.values.chunks_exact(self.metrics.len().max(1));
        self.times.iter().zip(values).map(|(&(start, end), values)| (start..end, values))
    }

    /// The position in [`metrics`](Self::metrics) of the one with this meaning.
    pub fn position(&self, meaning: MetricMeaning) -> Option<usize> {
        self.metrics.iter().position(|metric| metric.meaning == meaning)
    }

    /// Whether each sample has all of its values and a time, and samples are in order: those of a file may not be.
    #[cfg_attr(
        not(any(feature = "read", all(feature = "cuda", target_os = "linux"))),
        allow(dead_code, reason = "only files may be corrupted")
    )]
    pub(crate) fn is_consistent(&self) -> bool {
        let is_whole = self.times.len().checked_mul(self.metrics.len()) == Some(self.values.len());
        is_whole && self.times.iter().all(|(start, end)| start <= end) && self.times.is_sorted()
    }

    /// The bytes of the samples.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(self.times.as_slice()) + size_of_val(self.values.as_slice())
    }

    /// The number of samples that were lost, because decoding fell behind or the memory limit was exceeded. The trace's
    /// [`Losses`](super::Losses) count them as well.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Why nothing or less than requested was sampled, with what to change, if so.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Trace {
    /// The hardware counters of each GPU, if they were requested.
    ///
    /// ```
    /// # use kernspan::Trace;
    /// /// The highest use of the GPU's memory bandwidth, in percent.
    /// fn peak_bandwidth(trace: &Trace) -> Option<f64> {
    ///     let counters = trace.gpu_counters().first()?;
    ///     let dram = counters.position(kernspan::trace::MetricMeaning::DramActive)?;
    ///     counters.samples().map(|(_, values)| values[dram]).reduce(f64::max)
    /// }
    /// ```
    pub fn gpu_counters(&self) -> &[GpuCounters] {
        &self.gpu_counters
    }
}
