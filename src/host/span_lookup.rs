//! Looks up spans in the layer's subscriber.

use super::lane::Found;
use crate::recording::RegistryId;
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tracing::{Dispatch, dispatcher::WeakDispatch, span::Id};
use tracing_subscriber::Registry;

/// Looks up spans in the layer's subscriber, for callers without a reference to the subscriber.
#[derive(Debug, Default)]
pub(super) struct SpanLookup {
    subscriber: OnceLock<Installed>,
    /// Whether a thread may cache a span's callsite by the span's id. `Registry` reuses an id only on the thread that
    /// first created it, which then overwrites its own cache; another registry may reuse it elsewhere.
    caches: AtomicBool,
}

#[derive(Debug)]
struct Installed {
    dispatch: WeakDispatch,
    find: fn(&Dispatch, &Id) -> Option<Found>,
}

impl SpanLookup {
    /// Sets the layer's subscriber, and the function that finds a span in it. If a layer is installed more than once,
    /// the first subscriber stays.
    pub(super) fn install(&self, dispatch: &Dispatch, find: fn(&Dispatch, &Id) -> Option<Found>) {
        let _ = self.subscriber.set(Installed { dispatch: dispatch.downgrade(), find });
        self.caches.store(dispatch.downcast_ref::<Registry>().is_some(), Ordering::Relaxed);
    }

    pub(super) fn is_installed(&self) -> bool {
        self.subscriber.get().is_some()
    }

    #[inline]
    pub(super) fn caches_callsites(&self) -> bool {
        self.caches.load(Ordering::Relaxed)
    }

    /// The subscriber, unless it is gone.
    pub(super) fn dispatch(&self) -> Option<Dispatch> {
        self.subscriber.get()?.dispatch.upgrade()
    }

    /// Finds a live span.
    pub(super) fn find(&self, id: RegistryId) -> Option<Found> {
        let Installed { dispatch, find } = self.subscriber.get()?;
        find(&dispatch.upgrade()?, &Id::from_u64(id))
    }
}
