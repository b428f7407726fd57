//! What makes a million lookups cheap.

use std::{
    cmp::Ordering,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// A map whose keys nobody chooses to collide, as they are a program's own names, numbers and addresses.
pub(crate) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<QuickHasher>>;

/// A multiplication a word.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QuickHasher(u64);

impl QuickHasher {
    /// Odd, with bits all over: 2⁶⁴ divided by the golden ratio.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(Self::FACTOR);
    }
}

impl Hasher for QuickHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        // The best bits are the high ones, and a map takes them from both ends.
        let product = u128::from(self.0) * u128::from(Self::FACTOR);
        product as u64 ^ (product >> 64) as u64
    }
}

/// Looks something up in what is sorted, from where the last search ended: what comes in about the same order is found within a
/// few steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Finger(usize);

impl Finger {
    /// How many of the first are before what is looked for.
    pub(crate) fn count_before<T>(&mut self, sorted: &[T], is_before: impl Fn(&T) -> bool) -> usize {
        let near = self.0.min(sorted.len());
        let mut step = 1;
        let range = if sorted.get(near).is_some_and(&is_before) {
            while sorted.get(near + step).is_some_and(&is_before) {
                step *= 2;
            }
            near + step / 2..sorted.len().min(near + step)
        } else {
            while near >= step && !is_before(&sorted[near - step]) {
                step *= 2;
            }
            near.saturating_sub(step)..near
        };
        self.0 = range.start + sorted[range].partition_point(is_before);
        self.0
    }

    /// The place of what `compare` says is equal.
    pub(crate) fn find<T>(&mut self, sorted: &[T], compare: impl Fn(&T) -> Ordering) -> Option<usize> {
        let place = self.count_before(sorted, |one| compare(one).is_lt());
        sorted.get(place).is_some_and(|one| compare(one).is_eq()).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::{Finger, QuickHasher};
    use proptest::prelude::*;
    use std::{
        collections::HashSet,
        hash::{BuildHasher, BuildHasherDefault},
    };

    proptest! {
        #[test]
        fn a_finger_finds_what_a_search_finds(mut sorted in prop::collection::vec(0_u32..60, 0..50), wanted in prop::collection::vec(0_u32..64, 0..50)) {
            sorted.sort_unstable();
            let mut finger = Finger::default();
            for wanted in wanted {
                let place = sorted.partition_point(|one| *one < wanted);
                prop_assert_eq!(finger.count_before(&sorted, |one| *one < wanted), place);
                let found = sorted.get(place).is_some_and(|one| *one == wanted).then_some(place);
                prop_assert_eq!(finger.find(&sorted, |one| one.cmp(&wanted)), found);
            }
        }
    }

    #[test]
    fn numbers_and_addresses_are_spread_over_a_map() {
        let hasher = BuildHasherDefault::<QuickHasher>::default();
        for step in [1, 8, 512, 1 << 20] {
            let slots: HashSet<_> = (0..1024).map(|number| hasher.hash_one(number * step) & 1023).collect();
            assert!(slots.len() > 512, "{} of 1024 for every {step}", slots.len());
        }
    }
}
