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

/// How many are kept: as many as a thread usually makes before it enters the first.
const KEPT: usize = 64;

thread_local! {
    // Plain cells with no destructor, since this is on everybody's way.
    static CACHE: [Cell<Cached>; KEPT] = const {
        [const { Cell::new(Cached { profiler: 0, control: Control::OFF, id: 0, callsite: None }) }; KEPT]
    };
}

#[inline]
pub(super) fn remember(profiler: u64, control: Control, id: RegistryId, callsite: Callsite) {
    CACHE.with(|cached| cached[id as usize % KEPT].set(Cached { profiler, control, id, callsite: Some(callsite) }));
}

#[inline]
pub(super) fn recall(profiler: u64, control: Control, id: RegistryId) -> Option<Callsite> {
    let cached = CACHE.with(|cached| cached[id as usize % KEPT].get());
    let same = cached.id == id && cached.control == control && cached.profiler == profiler;
    cached.callsite.filter(|_| same)
}
