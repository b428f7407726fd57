//! Callbacks for frameworks that queue work, called when the user's spans change and when windows open and close.

use super::{Host, lanes::Lanes};
use crate::{clock::Clock, recording::Origin, thread::this_thread};
use std::{
    fmt, slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Callbacks for a framework that queues work before launching it, and so needs to know which span is open at any time.
///
/// Installed by [`HandOver::watch`](crate::framework::HandOver::watch). All methods are called on the user's threads:
/// they must be quick and must not panic.
pub trait Watcher: Send + Sync {
    /// Called for the first span of a thread since the watcher was installed.
    fn arrived(&self, origin: Origin) {
        let _ = origin;
    }

    /// Called when the thread has entered or exited a span while a window is open: work that it requests from now on
    /// comes from `origin`.
    fn changed(&self, origin: Origin);

    /// Called when a window is about to open or close. Work that the thread has requested should be launched before
    /// this returns, so that it falls on the right side of that moment.
    fn settle(&self) {}

    /// Called when a window has opened, at about `origin`. The spans open on other threads have not changed.
    fn opened(&self, origin: Origin) {
        let _ = origin;
    }

    /// Called when a window has closed and no other has opened.
    fn closed(&self) {}
}

/// A guard that keeps a [`Watcher`] installed until dropped, created by
/// [`HandOver::watch`](crate::framework::HandOver::watch).
#[must_use = "the watcher is removed when this is dropped"]
pub struct Watch {
    host: Arc<Host>,
    id: u64,
}

impl Watch {
    pub(super) fn new(host: Arc<Host>, watcher: Arc<dyn Watcher>) -> Self {
        let edge = host.edge();
        let id = host.watchers.add(Arc::clone(&watcher));
        if host.control().is_recording() {
            watcher.opened(Origin::new(host.clock.now(), this_thread()));
        }
        drop(edge);
        Self { host, id }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.host.watchers.remove(self.id);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// The installed watchers.
#[derive(Default)]
pub(super) struct Watchers {
    /// The number of watchers ever installed. Most programs have none, and pay for one load of this.
    ever: AtomicU64,
    all: RwLock<All>,
    /// Held while a watcher is installed and while a window opens or closes, so that one comes before the other.
    edge: Mutex<()>,
}

/// The watchers with their numbers. Callers clone the list, since watchers may take their time, and others come and go
/// meanwhile.
type All = Arc<[(u64, Arc<dyn Watcher>)]>;

impl Watchers {
    fn add(&self, watcher: Arc<dyn Watcher>) -> u64 {
        let id = self.ever.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(|all| all.cloned().chain([(id, Arc::clone(&watcher))]).collect());
        id
    }

    fn remove(&self, id: u64) {
        self.change(|all| all.filter(|(other, _)| *other != id).cloned().collect());
    }

    /// Replaces the list. The old one is dropped after the lock is released.
    fn change(&self, change: impl FnOnce(slice::Iter<'_, (u64, Arc<dyn Watcher>)>) -> All) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(all.iter());
        let before = std::mem::replace(&mut *all, changed);
        drop(all);
        drop(before);
    }

    fn all(&self) -> All {
        Arc::clone(&self.all.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a watcher was ever installed.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.latest() > 0
    }

    /// The number of the latest watcher, 0 if none was ever installed.
    #[inline]
    fn latest(&self) -> u64 {
        self.ever.load(Ordering::Relaxed)
    }

    /// Calls the watchers because this thread has entered or exited a span. No lane may be held.
    #[cold]
    pub(super) fn notify_changed(&self, recording: bool, lanes: &Lanes, clock: &Clock) {
        let latest = self.latest();
        let mut before = latest;
        lanes.with(|lane| before = std::mem::replace(&mut lane.latest_watcher, latest));
        if !recording && before == latest {
            return;
        }
        let origin = Origin::new(clock.now(), this_thread());
        for (id, watcher) in self.all().iter() {
            if *id > before {
                watcher.arrived(origin);
            }
            if recording {
                watcher.changed(origin);
            }
        }
    }

    /// Returns a guard to be held from before a window opens or closes until the watchers have been called for it.
    pub(super) fn edge(&self) -> MutexGuard<'_, ()> {
        self.edge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the watchers to launch the work that this thread has requested, before a window opens or closes.
    pub(super) fn settle(&self) {
        self.each(|watcher| watcher.settle());
    }

    pub(super) fn notify_opened(&self, clock: &Clock) {
        self.each(|watcher| watcher.opened(Origin::new(clock.now(), this_thread())));
    }

    pub(super) fn notify_closed(&self) {
        self.each(|watcher| watcher.closed());
    }

    fn each(&self, call: impl Fn(&dyn Watcher)) {
        self.all().iter().for_each(|(_, watcher)| call(&**watcher));
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("ever", &self.ever).finish_non_exhaustive()
    }
}
