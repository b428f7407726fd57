//! The queues of a device's threads: what is put there is run between the pieces of work that were put there before and after it.

use burn_std::device::{DeviceId, DeviceService, DeviceServiceStage, ServerUtilitiesHandle};
use std::sync::Arc;

/// On the thread that fuses operations.
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

/// On the thread that launches.
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
