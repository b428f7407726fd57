//! Lists that grow in small steps.

/// The length from which a list grows by a fraction of it.
const LARGE: usize = 1 << 16;

/// Adds an item to a list. A large list grows by a quarter instead of doubling: lists take most of the memory that
/// reading needs, and the system moves their pages instead of copying them.
#[inline]
pub(super) fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() && list.len() >= LARGE {
        list.reserve_exact(list.len() / 4);
    }
    list.push(item);
}
