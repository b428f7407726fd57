//! A cache of the callsites of spans that this thread made in this window, by the spans' ids.
//!
//! Most spans are entered as soon as they are made, and a look into the registry takes 30 ns.

use super::Control;
use crate::recording::{Callsite, RegistryId};
use std::cell::Cell;

/// A span's callsite, and the profiler and window that it was cached for.
#[derive(Clone, Copy)]
struct Cached {
    profiler: u64,
    control: Control,
    id: RegistryId,
    callsite: Option<Callsite>,
}

/// The number of entries: as many spans as a thread usually makes before it enters the first.
const CACHE_SIZE: usize = 64;

thread_local! {
    // Plain cells without a destructor, since every span comes by here.
    static CACHE: [Cell<Cached>; CACHE_SIZE] = const {
        [const { Cell::new(Cached { profiler: 0, control: Control::OFF, id: 0, callsite: None }) }; CACHE_SIZE]
    };
}

/// Adds a span that this thread has made.
#[inline]
pub(super) fn insert(profiler: u64, control: Control, id: RegistryId, callsite: Callsite) {
    CACHE.with(|cached| {
        cached[id as usize % CACHE_SIZE].set(Cached { profiler, control, id, callsite: Some(callsite) });
    });
}

/// Returns the callsite of a span, if it is cached.
#[inline]
pub(super) fn get(profiler: u64, control: Control, id: RegistryId) -> Option<Callsite> {
    let cached = CACHE.with(|cached| cached[id as usize % CACHE_SIZE].get());
    let same = cached.id == id && cached.control == control && cached.profiler == profiler;
    cached.callsite.filter(|_| same)
}
