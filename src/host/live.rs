//! A table of live spans, with their fields, their explicit parents, and whether their close ends a step.
//!
//! A model's spans are created once, perhaps long before a window opens, and entered repeatedly, so their fields have
//! to be kept in every phase. The registry's extensions could hold them, at about 140 ns and an allocation per span;
//! this table takes a quarter of that and does not allocate once warm. Spans with none of these never touch it, as long
//! as no span has an explicit parent.

use crate::{recording::RegistryId, span_table::SpanTable, trace::FieldData};
use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// A hash table of fixed size. If a bucket is full, the fields of a new span are lost and counted.
#[derive(Debug)]
pub(super) struct Live {
    table: SpanTable<Entry>,
    /// Whether there ever was an entry: until then, a span that closes need not be looked up.
    used: AtomicBool,
    /// Whether there ever was an explicit parent: until then, a span being entered need not be looked up for it.
    has_parents: AtomicBool,
    lost: AtomicU64,
    overflowed: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) fields: Vec<FieldData>,
    /// The parent given with `parent:`, if any.
    parent: Option<NonZeroU64>,
    /// A shared copy of the fields, from the second enter until they change.
    shared: Option<Arc<[FieldData]>>,
    /// The latest window in which the span was entered: fields recorded later belong to its instance there.
    pub(super) entered: Option<u32>,
    step: bool,
}

/// The fields of a span that is being entered.
pub(super) enum EnterFields<'a> {
    /// The span is entered for the first time; most spans are entered once.
    Each(&'a [FieldData]),
    /// The span is entered again.
    Shared(&'a Arc<[FieldData]>),
}

impl Entry {
    /// Sets a field, or adds it.
    pub(super) fn update(&mut self, field: &FieldData) {
        self.shared = None;
        match self.fields.iter_mut().find(|old| old.index == field.index) {
            Some(old) => old.value = field.value.clone(),
            None => self.fields.push(field.clone()),
        }
    }

    fn enter_fields(&mut self) -> EnterFields<'_> {
        if self.entered.is_none() || self.fields.is_empty() {
            return EnterFields::Each(&self.fields);
        }
        EnterFields::Shared(self.shared.get_or_insert_with(|| self.fields.as_slice().into()))
    }
}

impl Live {
    /// Returns a table for `capacity` spans, if they spread evenly.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            table: SpanTable::new(capacity),
            used: AtomicBool::new(false),
            has_parents: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            overflowed: AtomicBool::new(false),
        }
    }

    /// Adds a new span. Takes the fields and leaves an empty list in their place.
    pub(super) fn insert(&self, id: RegistryId, fields: &mut Vec<FieldData>, step: bool) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        let inserted = self.table.insert(id, |entry| {
            std::mem::swap(&mut entry.fields, fields);
            entry.parent = None;
            entry.shared = None;
            entry.entered = None;
            entry.step = step;
        });
        if !inserted {
            self.lost.fetch_add(1, Ordering::Relaxed);
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// Whether any span ever had an explicit parent.
    #[inline]
    pub(super) fn has_parents(&self) -> bool {
        self.has_parents.load(Ordering::Relaxed)
    }

    /// Sets the explicit parent of a span in the table.
    pub(super) fn set_parent(&self, id: RegistryId, parent: NonZeroU64) {
        self.has_parents.store(true, Ordering::Relaxed);
        self.with(id, |entry| entry.parent = Some(parent));
    }

    /// Returns the explicit parent of a span, if any.
    #[cold]
    pub(super) fn parent(&self, id: RegistryId) -> Option<NonZeroU64> {
        self.with(id, |entry| entry.parent).flatten()
    }

    /// Calls `f` with the fields of a span being entered in `window`; with none if the span is not in the table.
    #[inline]
    pub(super) fn enter<R>(&self, id: RegistryId, window: Option<u32>, f: impl FnOnce(EnterFields<'_>) -> R) -> R {
        match self.table.lock(id) {
            None => f(EnterFields::Each(&[])),
            Some(mut entry) => {
                let result = f(entry.enter_fields());
                entry.entered = window;
                result
            }
        }
    }

    /// Calls `f` with the entry of a span, if it is in the table.
    pub(super) fn with<R>(&self, id: RegistryId, f: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.table.lock(id).map(|mut entry| f(&mut entry))
    }

    /// Removes a closed span from the table. Returns whether that ends a step, if `steps` is set.
    #[inline]
    pub(super) fn remove(&self, id: RegistryId, steps: bool) -> Option<bool> {
        if self.used.load(Ordering::Relaxed) { self.remove_used(id, steps) } else { None }
    }

    fn remove_used(&self, id: RegistryId, steps: bool) -> Option<bool> {
        if steps { self.table.remove_with(id, |entry| entry.step) } else { self.table.remove(id).then_some(false) }
    }

    /// Whether any span ever failed to fit.
    pub(super) fn has_lost(&self) -> bool {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Fields lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Live;
    use crate::trace::{FieldData, Value};

    fn insert(live: &Live, id: u64, value: u64, step: bool) {
        live.insert(id, &mut vec![FieldData { index: 0, value: Value::U64(value) }], step);
    }

    fn value(live: &Live, id: u64) -> Option<u64> {
        live.with(id, |entry| entry.fields[0].value.as_u64())?
    }

    #[test]
    fn a_span_is_remembered_until_it_closes() {
        let live = Live::new(64);
        insert(&live, 7, 1, true);
        insert(&live, 8, 2, false);
        assert_eq!((value(&live, 7), value(&live, 8)), (Some(1), Some(2)));
        assert_eq!((live.remove(7, true), live.remove(8, true), live.remove(9, true)), (Some(true), Some(false), None));
        assert_eq!((value(&live, 7), value(&live, 8)), (None, None));
        insert(&live, 7, 3, false);
        assert_eq!(value(&live, 7), Some(3));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let live = Live::new(8);
        (1..=10_u64).for_each(|id| insert(&live, id, id, false));
        assert_eq!(live.take_lost(), 2);
        assert_eq!((1..=10).filter(|&id| value(&live, id) == Some(id)).count(), 8);
    }

    #[test]
    fn threads_share_the_table() {
        let live = Live::new(1024);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let live = &live;
                scope.spawn(move || {
                    for turn in 0..if cfg!(miri) { 20 } else { 2_000_u64 } {
                        let id = 1 + thread + 4 * (turn % 16);
                        insert(live, id, id, false);
                        assert_eq!(value(live, id), Some(id));
                        live.remove(id, false);
                    }
                });
            }
        });
        assert_eq!(live.take_lost(), 0);
    }
}
