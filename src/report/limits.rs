//! Limits on the number of rows, and the name of the row for everything past them.

/// The number of distinct names, and of distinct pairs of a name and a shape, that have rows of their own.
pub(super) const NAMES: usize = 10_000;

/// The name of the row that sums up everything past a limit.
pub(super) const OTHERS: &str = "[others]";
