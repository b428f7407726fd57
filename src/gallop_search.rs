//! A galloping search in sorted slices.

use std::cmp::Ordering;

/// A galloping search that starts where the last one ended.
///
/// It finds items in a sorted slice. Lookups in roughly the order of the slice take a few comparisons each.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GallopSearch {
    last: usize,
}

impl GallopSearch {
    /// Returns how many items at the start of the slice come before the target.
    pub(crate) fn count_before<T>(&mut self, sorted: &[T], is_before: impl Fn(&T) -> bool) -> usize {
        let start = self.last.min(sorted.len());
        let mut step = 1;
        let range = if sorted.get(start).is_some_and(&is_before) {
            while sorted.get(start + step).is_some_and(&is_before) {
                step *= 2;
            }
            start + step / 2..sorted.len().min(start + step)
        } else {
            while start >= step && !is_before(&sorted[start - step]) {
                step *= 2;
            }
            start.saturating_sub(step)..start
        };
        self.last = range.start + sorted[range].partition_point(is_before);
        self.last
    }

    /// Returns the index of the first item that `compare` considers equal.
    pub(crate) fn find<T>(&mut self, sorted: &[T], compare: impl Fn(&T) -> Ordering) -> Option<usize> {
        let index = self.count_before(sorted, |item| compare(item).is_lt());
        sorted.get(index).is_some_and(|item| compare(item).is_eq()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::GallopSearch;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_finds_the_same_as_a_binary_search(
            mut sorted in prop::collection::vec(0_u32..60, 0..50),
            wanted in prop::collection::vec(0_u32..64, 0..50),
        ) {
            sorted.sort_unstable();
            let mut search = GallopSearch::default();
            for wanted in wanted {
                let index = sorted.partition_point(|item| *item < wanted);
                prop_assert_eq!(search.count_before(&sorted, |item| *item < wanted), index);
                let found = sorted.get(index).is_some_and(|item| *item == wanted).then_some(index);
                prop_assert_eq!(search.find(&sorted, |item| item.cmp(&wanted)), found);
            }
        }
    }
}
