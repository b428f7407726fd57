//! Memory pools of frameworks, which the thread that follows the memory of the run reads.

use super::Host;
use crate::analysis::MemoryPool;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

/// The memory of a framework's pool at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// The bytes given to tensors.
    pub used: u64,
    /// The bytes taken from the device, whether or not they are in use.
    pub reserved: u64,
    /// The most bytes that the pool can take, if known.
    pub limit: Option<u64>,
}

/// A guard that has a pool read until it is dropped, created by
/// [`HandOver::follow_pool`](crate::framework::HandOver::follow_pool).
#[must_use = "the pool is no longer read when this is dropped"]
pub struct FollowedPool {
    host: Arc<Host>,
    id: u64,
}

impl FollowedPool {
    pub(super) fn new(host: Arc<Host>, pool: MemoryPool, read: ReadPool) -> Self {
        let id = host.pools.add(pool, read);
        Self { host, id }
    }
}

impl Drop for FollowedPool {
    fn drop(&mut self) {
        self.host.pools.lock().retain(|(id, ..)| *id != self.id);
    }
}

impl fmt::Debug for FollowedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowedPool").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Reads a pool; `None` if it has nothing to tell at the moment.
pub(super) type ReadPool = Arc<dyn Fn() -> Option<PoolUse> + Send + Sync>;

/// The pools that are followed.
#[derive(Default)]
pub(super) struct MemoryPools {
    /// The number of pools so far, from which each has its id.
    ever: AtomicU64,
    all: Mutex<Vec<(u64, MemoryPool, ReadPool)>>,
}

impl MemoryPools {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, MemoryPool, ReadPool)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, pool: MemoryPool, read: ReadPool) -> u64 {
        let id = self.ever.fetch_add(1, Ordering::Relaxed);
        self.lock().push((id, pool, read));
        id
    }

    /// Reads all pools, without the lock: a framework may take its time.
    pub(super) fn read(&self) -> Vec<(MemoryPool, PoolUse)> {
        let all = self.lock().clone();
        // A framework that panics has nothing to tell.
        let read = |read: ReadPool| catch_unwind(AssertUnwindSafe(|| read())).ok().flatten();
        all.into_iter().filter_map(|(_, pool, it)| Some((pool, read(it)?))).collect()
    }
}

impl fmt::Debug for MemoryPools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().iter().map(|(_, pool, _)| *pool)).finish()
    }
}
