//! Kernels, when they are issued: before they are in the queue.

use crate::device_thread::DeviceThread;
#[cfg(feature = "fusion")]
use crate::fusion::FusionThread;
use burn::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::sync::Arc;

/// Tells the device's thread of each launch right before it gets it.
#[derive(Debug)]
pub(crate) struct Launches;

impl Launches {
    /// Observes, unless somebody else does: there is room for one, and two cannot share it.
    pub(crate) fn observe() -> Option<LaunchObservation> {
        let observation = LaunchObservation::new(Arc::new(Self));
        // There is no other way to know.
        let replaced = format!("{observation:?}").contains("replaced_an_observer: true");
        (!replaced).then_some(observation)
    }
}

impl LaunchObserver for Launches {
    fn launched(&self, kernel: &'static str) {
        // What is launched from the device's own thread is launched to be measured.
        let measures = DeviceThread::is_here();
        if measures {
            DeviceThread::tunes(kernel);
        }
        // What a user's thread launches is in the span that the device's thread was last told of.
        #[cfg(feature = "fusion")]
        if !measures && !FusionThread::launches(kernel) {
            DeviceThread::launches_directly();
        }
    }
}
