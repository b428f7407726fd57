//! A table of live spans by their ids in the registry, shared by all threads without a common lock.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// The id that the subscriber's registry gave to a span, which it reuses for later spans.
pub(crate) type RegistryId = u64;

/// A hash table of fixed size. A span whose bucket is full has no room.
#[derive(Debug)]
pub(crate) struct SpanTable<E> {
    buckets: Box<[Bucket]>,
    /// One for each id of each bucket.
    entries: Box<[Mutex<E>]>,
}

/// Ids of spans; 0 is a free slot, since the registry's ids start at 1.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket([AtomicU64; Bucket::SLOTS]);

impl Bucket {
    /// The number of slots of a bucket: as many as fit a cache line.
    const SLOTS: usize = 8;
}

impl<E: Default> SpanTable<E> {
    /// Returns a table for `capacity` spans, if they spread evenly.
    pub(crate) fn new(capacity: usize) -> Self {
        let buckets = capacity.div_ceil(Bucket::SLOTS).next_power_of_two();
        Self {
            buckets: std::iter::repeat_with(Bucket::default).take(buckets).collect(),
            entries: std::iter::repeat_with(Mutex::default).take(buckets * Bucket::SLOTS).collect(),
        }
    }
}

impl<E> SpanTable<E> {
    /// The bucket of `id`.
    #[inline]
    fn bucket(&self, id: RegistryId) -> (usize, &Bucket) {
        // The registry counts in the upper bits how often it has used a slot. Without them, a slot keeps its bucket,
        // which is then in the cache.
        const SLOT: u64 = (1 << 51) - 1;
        // The highest bits of the product depend on all bits of the slot.
        let hash = (id & SLOT).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let bucket = (hash.rotate_left(self.buckets.len().trailing_zeros()) as usize) & (self.buckets.len() - 1);
        (bucket, &self.buckets[bucket])
    }

    /// Finds a span: its slot in the bucket, and its entry.
    #[inline]
    fn find(&self, id: RegistryId) -> Option<(&AtomicU64, &Mutex<E>)> {
        let (bucket, Bucket(ids)) = self.bucket(id);
        // Acquire: pairs with the store in `insert`.
        let slot = ids.iter().position(|slot| slot.load(Ordering::Acquire) == id)?;
        Some((&ids[slot], &self.entries[bucket * Bucket::SLOTS + slot]))
    }

    /// Adds a new span, and has `fill` set its entry, which is that of an earlier span. Returns false if there is no
    /// room.
    #[inline]
    pub(crate) fn insert(&self, id: RegistryId, fill: impl FnOnce(&mut E)) -> bool {
        let (bucket, Bucket(ids)) = self.bucket(id);
        for (slot, span) in ids.iter().enumerate() {
            if span.load(Ordering::Relaxed) != 0 {
                continue;
            }
            let mut entry = lock(&self.entries[bucket * Bucket::SLOTS + slot]);
            // Another thread may have taken the slot meanwhile.
            if span.load(Ordering::Relaxed) == 0 {
                fill(&mut entry);
                span.store(id, Ordering::Release);
                return true;
            }
        }
        false
    }

    /// Locks the entry of a span, if it is in the table.
    #[inline]
    pub(crate) fn lock(&self, id: RegistryId) -> Option<MutexGuard<'_, E>> {
        self.find(id).map(|(_, entry)| lock(entry))
    }

    /// Removes a closed span. Returns false if it is not in the table.
    ///
    /// Its entry stays until the slot is reused: nobody asks for a closed span, and a lock costs more than all the
    /// rest.
    #[inline]
    pub(crate) fn remove(&self, id: RegistryId) -> bool {
        self.find(id).map(|(slot, _)| slot.store(0, Ordering::Release)).is_some()
    }

    /// Removes a closed span, if it is in the table, and returns what `f` returns for its entry.
    #[inline]
    pub(crate) fn remove_with<R>(&self, id: RegistryId, f: impl FnOnce(&mut E) -> R) -> Option<R> {
        let (slot, entry) = self.find(id)?;
        let result = f(&mut lock(entry));
        slot.store(0, Ordering::Release);
        Some(result)
    }
}

#[inline]
fn lock<E>(entry: &Mutex<E>) -> MutexGuard<'_, E> {
    entry.lock().unwrap_or_else(PoisonError::into_inner)
}
