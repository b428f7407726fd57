//! The limit of how many steps the host is ahead of the GPU.

use crate::device::Device;
use cudarc::driver::{CudaEvent, DriverError};

/// A limit of how many steps the host is ahead of the GPU, by an event at the end of each step.
///
/// Without a limit, the host launches the kernels of a window long before the GPU runs them if the GPU is the slower.
/// With one, which many trainings have since their buffers take turns, the host's steps take as long as the GPU's.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The ends of the last steps. There is no limit if there are none.
    ends: Vec<CudaEvent>,
}

impl Lead {
    /// Limits the lead to a number of steps; 0 is no limit.
    pub(crate) fn new(steps: usize, device: &Device) -> Result<Self, DriverError> {
        Ok(Self { ends: (0..steps).map(|_| device.context.new_event(None)).collect::<Result<_, _>>()? })
    }

    /// Waits before a step until the host may go on.
    pub(crate) fn wait(&self, step: u64) -> Result<(), DriverError> {
        self.end_of(step).map_or(Ok(()), CudaEvent::synchronize)
    }

    /// Notes the end of a step.
    pub(crate) fn end(&self, step: u64, device: &Device) -> Result<(), DriverError> {
        self.end_of(step).map_or(Ok(()), |end| end.record(&device.stream))
    }

    /// Returns the event of a step, which the step as many before as may be ahead had, too.
    fn end_of(&self, step: u64) -> Option<&CudaEvent> {
        self.ends.get((step % self.ends.len().max(1) as u64) as usize)
    }
}
