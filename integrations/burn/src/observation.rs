//! This crate's observers of launches and operations, and their registration with Burn, which has one set of them for
//! all devices.

use crate::device_thread::DeviceThread;
#[cfg(feature = "fusion")]
use crate::fusion_thread::{FusionThread, OperationObserver};
#[cfg(feature = "fusion")]
use burn::backend::fusion::observer::FusionObservation;
use burn::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A guard that keeps this crate's observers registered, for all devices.
pub(crate) struct Observation {
    _launches: Option<LaunchObservation>,
    #[cfg(feature = "fusion")]
    _operations: FusionObservation,
}

impl Observation {
    /// Returns the current observation, or registers the observers and returns a new one.
    pub(crate) fn shared() -> Arc<Self> {
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.upgrade().unwrap_or_else(|| {
            let launches = LaunchReporter::observe();
            if launches.is_none() {
                tracing::warn!("another library observes Burn's launches: kernels of this window are not attributed");
            }
            let observation = Arc::new(Self {
                _launches: launches,
                #[cfg(feature = "fusion")]
                _operations: FusionObservation::new(Arc::new(OperationObserver)),
            });
            *current = Arc::downgrade(&observation);
            observation
        })
    }

    /// Returns whether another library observes launches.
    pub(crate) fn is_taken() -> bool {
        let current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        current.strong_count() == 0 && LaunchReporter::observe().is_none()
    }
}

static CURRENT: Mutex<Weak<Observation>> = Mutex::new(Weak::new());

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
