use std::cmp::Ordering;

/// Looks something up in what is sorted, from where the last search ended: what comes in about the same order is found within a
/// few steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GallopSearch(usize);

impl GallopSearch {
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
    use super::GallopSearch;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_finger_finds_what_a_search_finds(mut sorted in prop::collection::vec(0_u32..60, 0..50), wanted in prop::collection::vec(0_u32..64, 0..50)) {
            sorted.sort_unstable();
            let mut finger = GallopSearch::default();
            for wanted in wanted {
                let place = sorted.partition_point(|one| *one < wanted);
                prop_assert_eq!(finger.count_before(&sorted, |one| *one < wanted), place);
                let found = sorted.get(place).is_some_and(|one| *one == wanted).then_some(place);
                prop_assert_eq!(finger.find(&sorted, |one| one.cmp(&wanted)), found);
            }
        }
    }
}
