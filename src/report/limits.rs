//! Limits on rows: their number, the name of the row for everything past them, and the depth of their stacks.

/// The number of distinct names, and of distinct pairs of a name and a shape, that have rows of their own.
pub(super) const NAMES: usize = 10_000;

/// The name of the row that sums up everything past a limit.
pub(super) const OTHERS: &str = "[others]";

/// The number of names of a stack that a row has. A hundred are more than people read; recursion may be thousands deep,
/// and a row for each depth would take memory by the square of that.
pub(super) const STACK: usize = 100;

/// Returns the first names of a stack, from the inside out, and a last one that says how many are left out.
pub(super) fn shortened<'a>(stack: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut stack = stack.fuse();
    let mut names: Vec<_> = stack.by_ref().take(STACK).map(str::to_owned).collect();
    match stack.count() {
        0 => {}
        more => names.push(format!("[{more} more]")),
    }
    names
}
