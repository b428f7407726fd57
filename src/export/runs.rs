//! Where what belongs together lies in a trace: spans of a thread, work of a stream.

use std::ops::Range;

/// For each of `owners`, the range that holds all it owns. `owner_of` says whose each thing is, in order.
pub(super) fn runs(owners: usize, owner_of: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut runs = vec![0..0; owners];
    for (place, owner) in owner_of.enumerate() {
        let run = &mut runs[owner];
        run.start = if run.end == 0 { place } else { run.start };
        run.end = place + 1;
    }
    runs
}
