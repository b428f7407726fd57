//! Burn's observers, of which there is one set for all devices.

#[cfg(feature = "fusion")]
use crate::fusion::Operations;
use crate::launches::Launches;
#[cfg(feature = "fusion")]
use burn::backend::fusion::observer::FusionObservation;
use burn::cubecl::logging::LaunchObservation;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Observes Burn for as long as it lives: all devices at once.
pub(crate) struct Observed {
    _launches: Option<LaunchObservation>,
    #[cfg(feature = "fusion")]
    _operations: FusionObservation,
}

impl Observed {
    /// The one that there is, or a new one.
    pub(crate) fn shared() -> Arc<Self> {
        let mut known = OBSERVED.lock().unwrap_or_else(PoisonError::into_inner);
        known.upgrade().unwrap_or_else(|| {
            let launches = Launches::observe();
            if launches.is_none() {
                tracing::warn!("somebody else observes Burn's launches: kernels of this window are not attributed");
            }
            let observed = Arc::new(Self {
                _launches: launches,
                #[cfg(feature = "fusion")]
                _operations: FusionObservation::new(Arc::new(Operations)),
            });
            *known = Arc::downgrade(&observed);
            observed
        })
    }

    /// Whether somebody else does.
    pub(crate) fn is_taken() -> bool {
        let known = OBSERVED.lock().unwrap_or_else(PoisonError::into_inner);
        known.strong_count() == 0 && Launches::observe().is_none()
    }
}

static OBSERVED: Mutex<Weak<Observed>> = Mutex::new(Weak::new());
