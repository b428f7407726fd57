//! Registration of this crate's observers with Burn, which has one set of them for all devices.

#[cfg(feature = "fusion")]
use crate::fusion_thread::OperationObserver;
use crate::launch_reporter::LaunchReporter;
#[cfg(feature = "fusion")]
use burn::backend::fusion::observer::FusionObservation;
use burn::cubecl::logging::LaunchObservation;
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
