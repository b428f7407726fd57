use crate::recording::{Callsite, RegistryId};
use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};
use tracing::{Dispatch, dispatcher::WeakDispatch, span::Id};
use tracing_subscriber::Registry;

/// Looks spans up in the subscriber that the layer is in, from wherever there is none at hand.
#[derive(Debug, Default)]
pub(super) struct SpanLookup {
    subscriber: OnceLock<Installed>,
    /// Whether a span's callsite may be remembered by the span's id. `Registry` gives an id out again only on the
    /// thread that made it first, so that thread sees its own knowledge go stale; another registry may do otherwise.
    caches: AtomicBool,
}

#[derive(Debug)]
struct Installed {
    dispatch: WeakDispatch,
    callsite: fn(&Dispatch, &Id) -> Option<Callsite>,
}

impl SpanLookup {
    /// Says which subscriber the layer is in, and how that finds a span. A layer is installed once; were it wrapped and
    /// installed again, the first subscriber is as good.
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
