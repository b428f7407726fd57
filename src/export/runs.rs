//! The places in a trace of things that belong together, such as the spans of a thread or the work of a stream.

use std::ops::Range;

/// For each of `owners`, the range of places that holds everything it owns. `owner_of` gives the owner of each thing,
/// in order.
pub(super) fn runs(owners: usize, owner_of: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs = vec![0..0; owners];
    for (place, owner) in owner_of.enumerate() {
        let run = &mut runs[owner];
        run.start = if run.end == 0 { place } else { run.start };
        run.end = place + 1;
    }
    runs
}
