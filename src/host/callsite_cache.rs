//! A cache of the callsites of spans that this thread created in this window, by span id.
//!
//! Most spans are entered as soon as they are created, and a registry lookup takes 30 ns. The registry also knows the
//! span that was current where a span was created, which matters if the span is entered outside others. So the cache
//! also records whether each span was created outside others: then there is nothing to look up.

use super::Control;
use crate::recording::{Callsite, RegistryId};
use std::cell::Cell;

/// A span's callsite, and the key it was cached for.
#[derive(Clone, Copy)]
struct Cached {
    /// The key, with the bit [`INSIDE`] if another span may have been open when this one was created.
    key: u64,
    id: RegistryId,
    callsite: Option<Callsite>,
}

/// The number of entries: as many spans as a thread usually creates before it enters the first.
const CACHE_SIZE: usize = 64;

/// A bit that is not set in any key.
const INSIDE: u64 = 4;

thread_local! {
    // Plain cells without a destructor, since every span passes through here.
    static CACHE: [Cell<Cached>; CACHE_SIZE] = const {
        [const { Cell::new(Cached { key: 0, id: 0, callsite: None }) }; CACHE_SIZE]
    };

    /// The key for which no span is open on this thread; 0 if one may be open.
    static OUTSIDE: Cell<u64> = const { Cell::new(0) };
}

/// Returns the key of a profiler and a window. The control word has two bits, the marks of what is measured from bit 30
/// on, and the window in its upper half.
#[inline]
fn key(profiler: u64, control: Control) -> u64 {
    control.as_u64() ^ profiler << 3
}

/// Notes that no span is open on this thread.
#[inline]
pub(super) fn set_outside(profiler: u64, control: Control) {
    OUTSIDE.set(key(profiler, control));
}

/// Notes that a span is open on this thread.
#[inline]
pub(super) fn set_inside() {
    OUTSIDE.set(0);
}

/// Adds a span created by this thread.
#[inline]
pub(super) fn insert(profiler: u64, control: Control, id: RegistryId, callsite: Callsite) {
    let key = key(profiler, control);
    let key = if OUTSIDE.get() == key { key } else { key | INSIDE };
    set(Cached { key, id, callsite: Some(callsite) });
}

/// Notes that no span was open when this one was created, if it is cached.
pub(super) fn mark_outside(profiler: u64, control: Control, id: RegistryId) {
    if let Some(callsite) = get(profiler, control, id, false) {
        set(Cached { key: key(profiler, control), id, callsite: Some(callsite) });
    }
}

#[inline]
fn set(cached: Cached) {
    CACHE.with(|all| all[cached.id as usize % CACHE_SIZE].set(cached));
}

/// Returns the callsite of a span, if it is cached. If the span is entered `outermost`, it is returned only if the span
/// is known to have been created outside others.
#[inline]
pub(super) fn get(profiler: u64, control: Control, id: RegistryId, outermost: bool) -> Option<Callsite> {
    let cached = CACHE.with(|cached| cached[id as usize % CACHE_SIZE].get());
    let different = (cached.key ^ key(profiler, control)) & if outermost { u64::MAX } else { !INSIDE };
    cached.callsite.filter(|_| cached.id == id && different == 0)
}
