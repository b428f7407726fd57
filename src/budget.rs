//! The memory limit that the records of all windows share.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A count of the memory that records take, with their text and backtraces, from when they are read to when they have
/// been exported. It is counted in chunks, so that threads seldom contend for it.
#[derive(Debug)]
pub(crate) struct Budget {
    chunks: usize,
    held: AtomicUsize,
}

impl Budget {
    /// The size of a chunk.
    pub(crate) const CHUNK_BYTES: usize = 32 << 10;

    pub(crate) fn new(bytes: usize) -> Self {
        Self { chunks: bytes / Self::CHUNK_BYTES, held: AtomicUsize::new(0) }
    }

    /// Whether the limit is reached.
    pub(crate) fn is_spent(&self) -> bool {
        self.held.load(Ordering::Relaxed) >= self.chunks
    }

    /// Charges one chunk. The last ones may go past the limit.
    pub(crate) fn take(&self) {
        self.held.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns chunks that were charged.
    pub(crate) fn give_back(&self, chunks: usize) {
        self.held.fetch_sub(chunks, Ordering::Relaxed);
    }
}
