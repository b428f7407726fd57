//! Where work comes from, by the stream that it comes on.

use burn_std::stream::StreamId;
use kernspan::framework::Origin;
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Each thread of the user's has a stream of its own, which Burn passes on with the work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Arc<RwLock<FxHashMap<StreamId, Origin>>>);

impl Threads {
    const MAX: usize = 100_000;

    /// This thread's work comes on the stream that is current here.
    pub(crate) fn arrived(&self, origin: Origin) {
        let mut threads = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Nobody tells of threads that end.
        if threads.len() >= Self::MAX {
            threads.clear();
        }
        threads.insert(StreamId::current(), origin);
    }

    fn get(&self, stream: StreamId) -> Option<Origin> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&stream).copied()
    }
}

/// Where the work comes from that is in a device's queue from here on. It is changed by what passes through the queue itself, so it
/// is in step with the work.
#[derive(Debug)]
pub(crate) struct Streams {
    threads: Threads,
    /// When the window was opened, once that has passed through the queue.
    opened: Option<Origin>,
    changed: FxHashMap<StreamId, Origin>,
}

impl Streams {
    pub(crate) fn new(threads: Threads) -> Self {
        Self { threads, opened: None, changed: FxHashMap::default() }
    }

    /// A window is open from here on. A thread that has not changed its span since is where it was then.
    pub(crate) fn open(&mut self, opened: Origin) {
        self.changed.retain(|_, origin| !origin.is_before(opened));
        self.opened = Some(opened);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.is_some()
    }

    pub(crate) fn close(&mut self) {
        self.opened = None;
    }

    pub(crate) fn change(&mut self, stream: StreamId, origin: Origin) {
        self.changed.insert(stream, origin);
    }

    /// Where the work of a stream comes from; not known of a stream whose thread has never had a span.
    pub(crate) fn origin(&self, stream: StreamId) -> Option<Origin> {
        let opened = self.opened?;
        let changed = self.changed.get(&stream).copied();
        changed.or_else(|| Some(self.threads.get(stream)?.at_moment_of(opened)))
    }
}
