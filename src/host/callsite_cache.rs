//! A cache of what is known about the spans that this thread created in this window, by span id.
//!
//! Most spans are entered as soon as they are created, and a registry lookup takes 30 ns. Another one finds the span
//! that was current where a span was created, which decides whom it works for if it is entered outside others, and
//! whether it is called again if it is entered again.

use super::{Control, lane::Found};
use crate::recording::RegistryId;
use std::cell::Cell;

/// A span, and the key it was cached for.
#[derive(Clone, Copy)]
struct Cached {
    key: u64,
    id: RegistryId,
    found: Option<Found>,
}

/// The number of entries: as many spans as a thread usually creates before it enters the first.
const CACHE_SIZE: usize = 64;

thread_local! {
    // Plain cells without a destructor, since every span passes through here.
    static CACHE: [Cell<Cached>; CACHE_SIZE] = const {
        [const { Cell::new(Cached { key: 0, id: 0, found: None }) }; CACHE_SIZE]
    };
}

/// Returns the key of a profiler and a window. The control word has two bits, the marks of what is measured from bit 30
/// on, and the window in its upper half.
#[inline]
fn key(profiler: u64, control: Control) -> u64 {
    control.as_u64() ^ profiler << 3
}

/// Adds a span created by this thread.
#[inline]
pub(super) fn insert(profiler: u64, control: Control, id: RegistryId, found: Found) {
    let cached = Cached { key: key(profiler, control), id, found: Some(found) };
    CACHE.with(|all| all[id as usize % CACHE_SIZE].set(cached));
}

/// Returns a span, if it is cached.
#[inline]
pub(super) fn get(profiler: u64, control: Control, id: RegistryId) -> Option<Found> {
    let cached = CACHE.with(|cached| cached[id as usize % CACHE_SIZE].get());
    cached.found.filter(|_| cached.id == id && cached.key == key(profiler, control))
}
