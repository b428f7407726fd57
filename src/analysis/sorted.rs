//! Maps and sets with few keys, as sorted lists.
//!
//! `BTreeMap` would do, too. But each pair of types that it is used with adds some 5,000 lines of LLVM IR to the build,
//! and a list with the same methods a few hundred. Adding a key in front of others takes time by their number, so keys
//! are GPUs, threads, callsites or steps, or come in order.

use std::{borrow::Borrow, ops::Deref};

/// A map as a list of its entries, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortedMap<K, V>(Vec<(K, V)>);

/// A set as a sorted list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SortedSet<T>(Vec<T>);

impl<K: Ord, V> SortedMap<K, V> {
    /// Returns the value of a key, which is added if it is new.
    pub(crate) fn or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        let index = self.0.binary_search_by(|(known, _)| known.cmp(&key)).unwrap_or_else(|index| {
            self.0.insert(index, (key, new()));
            index
        });
        &mut self.0[index].1
    }

    /// Returns the value of a key, which is added with the default value if it is new.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        self.or_insert_with(key, V::default)
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok().map(|index| &self.0[index].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.binary_search_by(|(known, _)| known.cmp(key)).ok().map(|index| &mut self.0[index].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
}

impl<K, V> SortedMap<K, V> {
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl ExactSizeIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn map_values<W>(self, map: impl Fn(V) -> W) -> SortedMap<K, W> {
        SortedMap(self.0.into_iter().map(|(key, value)| (key, map(value))).collect())
    }

    pub(crate) fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_iter().map(|(_, value)| value)
    }
}

impl<T: Ord> SortedSet<T> {
    /// Adds a value. Returns whether it is new.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        let place = self.0.binary_search(&value);
        if let Err(index) = place {
            self.0.insert(index, value);
        }
        place.is_err()
    }

    /// Removes a value. Returns whether it was there.
    pub(crate) fn remove(&mut self, value: &T) -> bool {
        let place = self.0.binary_search(value);
        if let Ok(index) = place {
            self.0.remove(index);
        }
        place.is_ok()
    }

    /// Whether the set has a value. The method of slices, which looks at one after the other, is not used.
    pub(crate) fn contains(&self, value: &T) -> bool {
        self.0.binary_search(value).is_ok()
    }
}

impl<T: Ord> FromIterator<T> for SortedSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut set = Self::default();
        set.extend(values);
        set
    }
}

impl<T: Ord> Extend<T> for SortedSet<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        for value in values {
            self.insert(value);
        }
    }
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Default for SortedSet<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K, V> Deref for SortedMap<K, V> {
    type Target = [(K, V)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<T> Deref for SortedSet<T> {
    type Target = [T];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K, V> IntoIterator for SortedMap<K, V> {
    type Item = (K, V);
    type IntoIter = std::vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<T> IntoIterator for SortedSet<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(feature = "serde")]
impl<K: serde::Serialize, V: serde::Serialize> serde::Serialize for SortedMap<K, V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::{SortedMap, SortedSet};

    #[test]
    fn entries_are_in_the_order_of_keys() {
        let mut map = SortedMap::default();
        for (key, value) in [(3, 1), (1, 10), (3, 2), (2, 100)] {
            *map.or_default(key) += value;
        }
        assert_eq!(map[..], [(1, 10), (2, 100), (3, 3)]);
        assert_eq!((map.get(&2), map.get(&4), map.contains_key(&3)), (Some(&100), None, true));
        *map.get_mut(&1).unwrap() = 11;
        assert_eq!(*map.or_insert_with(0, || 7), 7);
        assert_eq!(map.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(map.into_values().collect::<Vec<_>>(), [7, 11, 100, 3]);
    }

    #[test]
    fn values_are_in_a_set_once() {
        let mut set: SortedSet<_> = [3, 1, 3, 2].into_iter().collect();
        assert_eq!((set.insert(0), set.insert(1), set.contains(&2)), (true, false, true));
        assert_eq!((set.remove(&2), set.contains(&2), &set[..]), (true, false, &[0, 1, 3][..]));
    }
}
