//! Rows on which ranges nest, since no viewer draws ranges that cross.

use crate::{
    gallop_search::GallopSearch,
    trace::{Step, Timestamp, Trace},
};

/// Puts ranges on as few rows as it takes, one after the other.
#[derive(Debug, Default)]
pub(super) struct Nest {
    /// The ends of what is open on each row, outermost first.
    rows: Vec<Vec<Timestamp>>,
}

impl Nest {
    /// The row of a range, `first` or one after it.
    ///
    /// Ranges come in the order of their starts, and of those that start together the longest first.
    pub(super) fn place(&mut self, start: Timestamp, end: Timestamp, first: usize) -> usize {
        if self.rows.len() <= first {
            self.rows.resize(first + 1, Vec::new());
        }
        let fits = |open: &mut Vec<Timestamp>| {
            while open.pop_if(|end| *end <= start).is_some() {}
            open.last().is_none_or(|&outer| end <= outer)
        };
        let row = match self.rows[first..].iter_mut().position(fits) {
            Some(place) => first + place,
            None => {
                self.rows.push(Vec::new());
                self.rows.len() - 1
            }
        };
        self.rows[row].push(end);
        row
    }
}

/// Whether no span or call of a thread that steps lies across a step's edge, as when `step()` is called inside a span.
pub(super) fn steps_nest(trace: &Trace) -> bool {
    let steps = trace.steps();
    let mut near = GallopSearch::default();
    let mut within = |at: Timestamp| {
        let after = near.count_before(steps, |step| step.start() < at);
        after.checked_sub(1).map(|place| &steps[place]).filter(|step| at < step.end())
    };
    let spans = trace.spans().map(|span| (span.track_id(), span.start(), span.end()));
    let calls = trace.api_calls().map(|call| (call.track_id(), call.start(), call.end()));
    steps.is_empty()
        || spans.chain(calls).all(|(track, start, end)| {
            let crosses = |step: &Step| {
                let nests =
                    (step.start() <= start && end <= step.end()) || (start <= step.start() && step.end() <= end);
                step.track_id() == track && !nests
            };
            !within(start).is_some_and(crosses) && !within(end).is_some_and(crosses)
        })
}

#[cfg(test)]
mod tests {
    use super::Nest;
    use crate::trace::Timestamp;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn rows(ranges: &[(u64, u64)]) -> Vec<usize> {
        let mut nest = Nest::default();
        let at = Timestamp::from_unix_nanos;
        ranges.iter().map(|&(start, end)| nest.place(at(start), at(end), 0)).collect()
    }

    #[test]
    fn what_nests_shares_a_row_and_what_crosses_does_not() {
        assert_eq!(rows(&[(0, 10), (0, 5), (5, 10), (6, 10), (10, 12)]), [0, 0, 0, 0, 0]);
        assert_eq!(rows(&[(0, 10), (5, 15), (6, 9), (11, 20)]), [0, 1, 0, 0]);
    }

    #[test]
    fn a_range_can_be_kept_off_the_first_rows() {
        let at = Timestamp::from_unix_nanos;
        assert_eq!(Nest::default().place(at(0), at(1), 2), 2);
    }

    proptest! {
        #[test]
        fn nothing_crosses_on_a_row(mut ranges in prop::collection::vec((0_u64..50, 0_u64..50), 0..40)) {
            ranges.iter_mut().for_each(|(start, end)| *end += *start);
            ranges.sort_by_key(|&(start, end)| (start, Reverse(end)));
            let rows = rows(&ranges);
            for (a, left) in ranges.iter().enumerate() {
                for (b, right) in ranges.iter().enumerate().skip(a + 1) {
                    prop_assert!(rows[a] != rows[b] || left.1 <= right.0 || right.1 <= left.1);
                }
            }
        }
    }
}
