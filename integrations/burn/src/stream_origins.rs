//! Origins of work by the stream on which it arrives. Each user thread has its own stream, which Burn passes on with
//! the work.

use burn_std::stream::StreamId;
use kernspan::framework::Origin;
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The first origin of each user thread by the thread's stream, shared by all threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadOrigins(Arc<RwLock<FxHashMap<StreamId, Origin>>>);

impl ThreadOrigins {
    const MAX_THREADS: usize = 100_000;

    /// Adds the calling thread's stream.
    pub(crate) fn add(&self, origin: Origin) {
        let mut threads = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // The end of a thread is not reported, so the map would grow without this limit.
        if threads.len() >= Self::MAX_THREADS {
            threads.clear();
        }
        threads.insert(StreamId::current(), origin);
    }

    fn get(&self, stream: StreamId) -> Option<Origin> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&stream).copied()
    }
}

/// The current origin of each stream at one end of a device's queue. Changes arrive through the queue itself, so they
/// are in step with the work.
#[derive(Debug)]
pub(crate) struct StreamOrigins {
    threads: ThreadOrigins,
    /// The opening of the current window, once it has arrived through the queue.
    opened: Option<Origin>,
    changed: FxHashMap<StreamId, Origin>,
}

impl StreamOrigins {
    pub(crate) fn new(threads: ThreadOrigins) -> Self {
        Self { threads, opened: None, changed: FxHashMap::default() }
    }

    /// Opens a window. A thread that has not changed its span since then is still in the span that was open at that
    /// time.
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

    /// Sets the origin of a stream.
    pub(crate) fn set(&mut self, stream: StreamId, origin: Origin) {
        self.changed.insert(stream, origin);
    }

    /// Returns the origin of a stream's work; `None` if no window is open or the stream's thread has never had a span.
    pub(crate) fn get(&self, stream: StreamId) -> Option<Origin> {
        let opened = self.opened?;
        let changed = self.changed.get(&stream).copied();
        changed.or_else(|| Some(self.threads.get(stream)?.at_moment_of(opened)))
    }
}
