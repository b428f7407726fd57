//! Ranges of indices by owner, such as the spans of each thread or the work of each stream.

use std::ops::Range;

/// Returns for each of `owners` the range of indices that holds everything it owns. `owner_of` returns the owner of
/// each thing, in order.
///
/// A range may also hold things of other owners: whoever uses it has to leave them out.
pub(super) fn index_ranges(owners: usize, owner_of: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges = vec![0..0; owners];
    for (index, owner) in owner_of.enumerate() {
        let range = &mut ranges[owner];
        range.start = if range.end == 0 { index } else { range.start };
        range.end = index + 1;
    }
    ranges
}
