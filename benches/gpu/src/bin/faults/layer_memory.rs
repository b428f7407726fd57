//! The memory that layers need beside their activations.

use crate::{device::allocate, training::LayerMemory};
use cudarc::driver::{DriverError, result, sys};

/// The buffers of layers: one for all of them, or a new one each time.
#[derive(Debug)]
pub(crate) struct LayerBuffers {
    reused: Option<sys::CUdeviceptr>,
    each_layer: bool,
}

impl LayerBuffers {
    const BYTES: usize = 64 << 20;

    /// Allocates the buffer that is used again, if there is one.
    pub(crate) fn new(memory: LayerMemory) -> Result<Self, DriverError> {
        let reused = (memory == LayerMemory::Reused).then(|| allocate(Self::BYTES)).transpose()?;
        Ok(Self { reused, each_layer: memory == LayerMemory::Allocated })
    }

    /// Calls a function with the buffer of a layer, if layers have one.
    #[allow(unsafe_code, reason = "the driver is a C library")]
    pub(crate) fn with<E: From<DriverError>>(
        &self,
        layer: impl FnOnce(Option<sys::CUdeviceptr>) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.each_layer {
            return layer(self.reused);
        }
        let buffer = allocate(Self::BYTES)?;
        layer(Some(buffer))?;
        // SAFETY: it was allocated here; `cuMemFree` waits for the kernels that use it.
        Ok(unsafe { result::free_sync(buffer) }?)
    }
}
