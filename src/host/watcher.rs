//! Who follows spans and windows besides the profiler: frameworks that put work aside.

use super::{Host, lanes::Lanes};
use crate::{clock::Clock, recording::Origin, thread::this_thread};
use std::{
    fmt, slice,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// Follows spans and windows, on behalf of a framework that puts work aside before it passes it on.
///
/// Such a framework has to know at any time where the work comes from that it is given. See [`HandOver::watch`](crate::framework::HandOver::watch).
/// All of it is called on the user's threads, so it has to be quick, and may not panic.
pub trait Watcher: Send + Sync {
    /// The thread has a span, for the first time that the watcher hears of it.
    fn arrived(&self, origin: Origin) {
        let _ = origin;
    }

    /// The thread has entered or exited a span while a window is open: what it asks for from now on comes from `origin`.
    fn changed(&self, origin: Origin);

    /// A window is about to open or to close. What the thread has asked for until now should be done when this returns, so that it is
    /// found on its own side of the edge.
    fn settle(&self) {}

    /// A window has opened, at about `origin`. Threads whose spans do not change are still where they were.
    fn opened(&self, origin: Origin) {
        let _ = origin;
    }

    /// The window has closed, and none has followed.
    fn closed(&self) {}
}

/// Watches for as long as it lives: made by [`HandOver::watch`](crate::framework::HandOver::watch).
#[must_use = "nothing is watched once it is dropped"]
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

/// All of them.
#[derive(Default)]
pub(super) struct Watchers {
    /// How many there have ever been: 0 while nobody ever watched, which is what most programs pay for.
    ever: AtomicU64,
    all: RwLock<All>,
    /// So that who comes to watch comes before or after a window's edge.
    edge: Mutex<()>,
}

/// Each with its number. Whoever tells them has a copy, as they may take their time, and others come and go meanwhile.
type All = Arc<[(u64, Arc<dyn Watcher>)]>;

impl Watchers {
    fn add(&self, watcher: Arc<dyn Watcher>) -> u64 {
        let id = self.ever.fetch_add(1, Ordering::Relaxed) + 1;
        self.change(|all| all.cloned().chain([(id, Arc::clone(&watcher))]).collect());
        id
    }

    fn remove(&self, id: u64) {
        self.change(|all| all.filter(|(known, _)| *known != id).cloned().collect());
    }

    /// What was there before is dropped when the lock is free again.
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

    /// Whether there ever was one.
    #[inline]
    pub(super) fn any(&self) -> bool {
        self.latest() > 0
    }

    /// The number of the latest, 0 if there never was one.
    #[inline]
    fn latest(&self) -> u64 {
        self.ever.load(Ordering::Relaxed)
    }

    /// Tells that this thread has entered or exited a span. No lane may be held.
    #[cold]
    pub(super) fn tell_of_change(&self, recording: bool, lanes: &Lanes, clock: &Clock) {
        let latest = self.latest();
        let mut told = latest;
        lanes.with(|lane| told = std::mem::replace(&mut lane.told_watchers, latest));
        if !recording && told == latest {
            return;
        }
        let origin = Origin::new(clock.now(), this_thread());
        for (id, watcher) in self.all().iter() {
            if *id > told {
                watcher.arrived(origin);
            }
            if recording {
                watcher.changed(origin);
            }
        }
    }

    /// To be held from before a window's edge until the watchers know of it.
    pub(super) fn edge(&self) -> MutexGuard<'_, ()> {
        self.edge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has everything done that was asked for on this thread, before a window's edge.
    pub(super) fn settle(&self) {
        self.each(|watcher| watcher.settle());
    }

    pub(super) fn tell_of_opening(&self, clock: &Clock) {
        self.each(|watcher| watcher.opened(Origin::new(clock.now(), this_thread())));
    }

    pub(super) fn tell_of_closing(&self) {
        self.each(|watcher| watcher.closed());
    }

    fn each(&self, tell: impl Fn(&dyn Watcher)) {
        self.all().iter().for_each(|(_, watcher)| tell(&**watcher));
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("ever", &self.ever).finish_non_exhaustive()
    }
}
