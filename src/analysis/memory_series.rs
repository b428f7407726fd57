//! Memory in the course of a run, and whether it grows.

use super::{MemorySnapshot, RunVitals};
use crate::trace::{DeviceId, Timestamp};
use std::fmt;

/// A memory whose use is followed over the steps of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum MemorySource {
    /// The resident memory of the process.
    Process,
    /// The resident memory when the profiler was built, plus what the program has allocated on the heap since, minus
    /// what it has freed: see [`Allocator`](crate::Allocator).
    Heap,
    /// What is in use of the driver's pool of a GPU, from which `cuMemAllocAsync` allocates.
    Gpu(DeviceId),
    /// The bytes that this pool has reserved on the GPU, in use or kept for reuse.
    GpuReserved(DeviceId),
    /// The part of a GPU's memory that the process has, in and outside of pools, with contexts and kernels.
    GpuProcess(DeviceId),
    /// The part of a GPU's memory that all processes have together.
    GpuDevice(DeviceId),
    /// What a framework's own pool has given to tensors.
    Pool(MemoryPool),
    /// What a framework's own pool has taken from the device, whether or not it is in use.
    PoolReserved(MemoryPool),
}

/// The memory pool of a framework on one of its devices: see [`HandOver::follow_pool`].
///
/// `Display` writes both, such as `burn0`; its counters are `memory.burn0.used` and `memory.burn0.reserved`.
///
/// [`HandOver::follow_pool`]: crate::framework::HandOver::follow_pool
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPool {
    /// The name of the framework, in lower case: `burn`.
    pub framework: &'static str,
    /// The number of the device. On CUDA it is that of the GPU.
    pub device: DeviceId,
}

impl MemoryPool {
    /// Names the pool of a framework on a device.
    pub fn new(framework: &'static str, device: u32) -> Self {
        Self { framework, device: DeviceId::new(device) }
    }
}

impl fmt::Display for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.framework, self.device)
    }
}

impl MemorySource {
    /// Returns the GPU, or the framework's device; `None` for memory of the host.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Self::Process | Self::Heap => None,
            Self::Gpu(id) | Self::GpuReserved(id) | Self::GpuProcess(id) | Self::GpuDevice(id) => Some(id),
            Self::Pool(pool) | Self::PoolReserved(pool) => Some(pool.device),
        }
    }

    /// Returns the framework's pool, if it is one.
    pub fn pool(self) -> Option<MemoryPool> {
        match self {
            Self::Pool(pool) | Self::PoolReserved(pool) => Some(pool),
            _ => None,
        }
    }
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process => f.write_str("process memory"),
            Self::Heap => f.write_str("the heap"),
            Self::Gpu(device) => write!(f, "GPU {device} memory"),
            Self::GpuReserved(device) => write!(f, "reserved memory of GPU {device}"),
            Self::GpuProcess(device) => write!(f, "process memory on GPU {device}"),
            Self::GpuDevice(device) => write!(f, "memory of all processes on GPU {device}"),
            Self::Pool(MemoryPool { framework, device }) => write!(f, "{framework} memory on device {device}"),
            Self::PoolReserved(MemoryPool { framework, device }) => {
                write!(f, "memory reserved by {framework} on device {device}")
            }
        }
    }
}

/// The bytes in use at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemoryPoint {
    /// The number of the step at that moment.
    pub step: u64,
    /// The moment, in nanoseconds of the wall clock.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub at: Timestamp,
    /// The bytes in use.
    pub bytes: u64,
}

/// A memory over the steps of a run, as a sample that is spread evenly over it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct MemorySeries {
    source: MemorySource,
    limit: Option<u64>,
    peak: u64,
    points: Vec<MemoryPoint>,
}

/// The memory of a run: its use over all steps, and the snapshots that were taken automatically.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedMemory {
    pub(crate) series: Vec<MemorySeries>,
    pub(crate) snapshots: Vec<MemorySnapshot>,
}

/// What was followed over the whole run, recorded or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowedRun {
    pub(crate) memory: FollowedMemory,
    pub(crate) vitals: RunVitals,
}

impl MemorySeries {
    /// The number of points at which every other one is dropped.
    const CAPACITY: usize = 512;
    /// Creates an empty series of a memory of this size, if known.
    pub(crate) fn new(source: MemorySource, limit: Option<u64>) -> Self {
        Self { source, limit, peak: 0, points: Vec::new() }
    }

    /// Adds a point. Returns false if every other point was dropped, so that the next ones should be further apart.
    pub(crate) fn push(&mut self, step: u64, at: Timestamp, bytes: u64) -> bool {
        self.note_peak(bytes);
        self.points.push(MemoryPoint { step, at, bytes });
        let full = self.points.len() >= Self::CAPACITY;
        if full {
            let mut keep = false;
            self.points.retain(|_| {
                keep = !keep;
                keep
            });
        }
        !full
    }

    /// Takes note of the bytes at a moment that is no point of the series.
    pub(crate) fn note_peak(&mut self, bytes: u64) {
        self.peak = self.peak.max(bytes);
    }

    /// The memory.
    pub fn source(&self) -> MemorySource {
        self.source
    }

    /// The size of the memory, if known.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// The most bytes seen in use.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The points, in chronological order.
    pub fn points(&self) -> &[MemoryPoint] {
        &self.points
    }
}

#[cfg(test)]
mod tests {
    use super::{MemorySeries, MemorySource};
    use crate::trace::Timestamp;

    #[test]
    fn a_long_run_takes_as_many_points_as_a_short_one() {
        let mut series = MemorySeries::new(MemorySource::Heap, None);
        let mut stride = 1;
        for step in 0..1_000_000 {
            if step % stride == 0 && !series.push(step, Timestamp::default(), step) {
                stride *= 2;
            }
        }
        assert!((256..512).contains(&series.points().len()), "{}", series.points().len());
        assert!(series.peak() > 990_000);
    }
}
