//! Callsites that need not be looked up in the registry, which takes 30 ns: those of spans that this thread made in this
//! window. Mostly a span is entered as soon as it is made.

use super::Control;
use crate::recording::{Callsite, RegistryId};
use std::cell::Cell;

/// A span's callsite, and for which profiler and window it is known.
#[derive(Clone, Copy)]
struct Known {
    profiler: u64,
    control: Control,
    id: RegistryId,
    callsite: Option<Callsite>,
}

/// How many are kept: as many as a thread usually makes before it enters the first.
const KEPT: usize = 64;

thread_local! {
    // Plain cells with no destructor, since this is on everybody's way.
    static KNOWN: [Cell<Known>; KEPT] = const {
        [const { Cell::new(Known { profiler: 0, control: Control::OFF, id: 0, callsite: None }) }; KEPT]
    };
}

#[inline]
pub(super) fn remember(profiler: u64, control: Control, id: RegistryId, callsite: Callsite) {
    KNOWN.with(|known| known[id as usize % KEPT].set(Known { profiler, control, id, callsite: Some(callsite) }));
}

#[inline]
pub(super) fn recall(profiler: u64, control: Control, id: RegistryId) -> Option<Callsite> {
    let known = KNOWN.with(|known| known[id as usize % KEPT].get());
    let same = known.id == id && known.control == control && known.profiler == profiler;
    known.callsite.filter(|_| same)
}
