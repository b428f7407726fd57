//! Ranges of indices by owner, such as the spans of each thread or the work of each stream.

use std::ops::Range;

/// Returns for each of `owners` the range of indices that contains everything it owns. `owner_of` returns the owner of
/// each item, in order.
///
/// A range may also contain items of other owners, which callers have to skip.
pub(super) fn index_ranges(owners: usize, owner_of: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut ranges = vec![0..0; owners];
    for (index, owner) in owner_of.enumerate() {
        let range = &mut ranges[owner];
        range.start = if range.end == 0 { index } else { range.start };
        range.end = index + 1;
    }
    ranges
}
