//! Services that give access to the queues of a device's threads. A task that is submitted to one runs between the work
//! that was queued before it and the work that is queued after it.

use burn_std::device::{DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle};
use std::sync::Arc;

/// A service on the fusion thread, which fuses operations.
#[cfg(feature = "fusion")]
#[derive(Debug)]
pub(crate) struct Upstream;

#[cfg(feature = "fusion")]
impl DeviceService for Upstream {
    fn init(_: DeviceId) -> Self {
        Self
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }

    fn stage() -> DeviceServiceStage {
        DeviceServiceStage::Upstream
    }
}

/// A service on the device thread, which launches kernels.
#[derive(Debug)]
pub(crate) struct Downstream;

impl DeviceService for Downstream {
    fn init(_: DeviceId) -> Self {
        Self
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        Arc::new(())
    }

    fn stage() -> DeviceServiceStage {
        DeviceServiceStage::Downstream
    }
}
