//! The usage of one GPU in one step.

use super::gpu_usage::GpuUsage;
use crate::trace::DeviceId;
use std::time::Duration;

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
