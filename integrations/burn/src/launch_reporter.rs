use crate::device_thread::DeviceThread;
#[cfg(feature = "fusion")]
use crate::fusion_thread::FusionThread;
use burn::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::sync::Arc;

/// An observer of launches that announces each launch to the device thread, right before the launch is put in its
/// queue.
#[derive(Debug)]
pub(crate) struct LaunchReporter;

impl LaunchReporter {
    /// Registers the observer; `None` if there is another one, because Burn has room for one.
    pub(crate) fn observe() -> Option<LaunchObservation> {
        let observation = LaunchObservation::new(Arc::new(Self));
        // Burn shows only in the debug output whether an observer was replaced.
        let replaced = format!("{observation:?}").contains("replaced_an_observer: true");
        (!replaced).then_some(observation)
    }
}

impl LaunchObserver for LaunchReporter {
    fn launched(&self, kernel: &'static str) {
        // The device thread itself issues launches only for autotuning.
        let is_autotune = DeviceThread::is_here();
        if is_autotune {
            DeviceThread::expect_autotune_launch(kernel);
        }
        // A launch from a user's thread belongs to the origin that the device thread has for that thread's stream.
        #[cfg(feature = "fusion")]
        if !is_autotune && !FusionThread::announce_launch(kernel) {
            DeviceThread::expect_direct_launch();
        }
    }
}
