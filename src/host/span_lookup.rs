//! A lookup of spans in the subscriber that the layer is in.

use crate::recording::{Callsite, RegistryId};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tracing::{Dispatch, dispatcher::WeakDispatch, span::Id};
use tracing_subscriber::Registry;

/// A lookup of spans in the subscriber that the layer is in, for callers that have no reference to the subscriber.
#[derive(Debug, Default)]
pub(super) struct SpanLookup {
    subscriber: OnceLock<Installed>,
    /// Whether a thread may cache a span's callsite by the span's id. `Registry` reuses an id only on the thread that
    /// made it first, which then overwrites its own cache; another registry may reuse it elsewhere.
    caches: AtomicBool,
}

#[derive(Debug)]
struct Installed {
    dispatch: WeakDispatch,
    callsite: fn(&Dispatch, &Id) -> Option<Callsite>,
}

impl SpanLookup {
    /// Sets the subscriber that the layer is in, and the function that finds a span's callsite in it. If a layer is
    /// installed more than once, the first subscriber stays.
    pub(super) fn install(&self, dispatch: &Dispatch, callsite: fn(&Dispatch, &Id) -> Option<Callsite>) {
        let _ = self.subscriber.set(Installed { dispatch: dispatch.downgrade(), callsite });
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

    /// The callsite of a span that is alive.
    pub(super) fn callsite(&self, id: RegistryId) -> Option<Callsite> {
        let Installed { dispatch, callsite } = self.subscriber.get()?;
        callsite(&dispatch.upgrade()?, &Id::from_u64(id))
    }
}
