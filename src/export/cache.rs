//! A bounded cache.

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// A map of at most [`CAPACITY`](Self::CAPACITY) entries, which is cleared when full.
///
/// A training loop does few different things, each many times, so exporters keep the text of each. A program that never
/// repeats itself must not fill the memory.
#[derive(Debug)]
pub(super) struct Cache<K, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V> Cache<K, V> {
    const CAPACITY: usize = 4096;

    /// Returns the value of a key, creating it if necessary.
    #[inline]
    pub(super) fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        if self.0.len() >= Self::CAPACITY && !self.0.contains_key(&key) {
            self.0.clear();
        }
        self.0.entry(key).or_insert_with(make)
    }
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(FxHashMap::default())
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn a_full_cache_begins_anew() {
        let mut cache = Cache::default();
        for key in 0..=Cache::<usize, usize>::CAPACITY {
            assert_eq!(*cache.get_or_insert_with(key, || key), key);
            assert_eq!(*cache.get_or_insert_with(key, || unreachable!()), key);
        }
        assert_eq!(cache.0.len(), 1);
    }
}
