//! The stack of open spans on a thread, innermost last.
//!
//! The thread maintains it. The collector can read it, since a thread that is blocked in a span through a whole window
//! writes nothing itself.

use crate::{
    clock::Ticks,
    recording::{Origin, RegistryId},
    trace::ThreadId,
};
use rustc_hash::FxBuildHasher;
use std::{
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// The stack, as its thread sees it.
#[derive(Debug)]
pub(super) struct Stack {
    depth: usize,
    /// A bit for each of the outer spans: whether it is recorded in this window.
    recorded: u64,
    shared: Arc<SharedStack>,
    /// Spans nested too deeply to be shared.
    deep: Vec<Open>,
}

/// The outer spans of the stack, as the collector sees them.
#[derive(Debug)]
pub(super) struct SharedStack {
    ids: [AtomicU64; SharedStack::DEPTH],
    depth: AtomicUsize,
    /// The origin that the thread has adopted: its thread, or 0 for none, with the batch in the upper half; and its
    /// moment.
    adopted: (AtomicU64, AtomicU64),
}

/// The spans that are open on a thread at one moment. Of a deeper stack, these are the outer ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenSpans {
    ids: [RegistryId; SharedStack::DEPTH],
    depth: usize,
}

impl OpenSpans {
    /// The ids, outermost first.
    pub(crate) fn ids(&self) -> &[RegistryId] {
        &self.ids[..self.depth]
    }

    /// Returns a number that is the same for the same spans.
    pub(crate) fn hash(&self) -> u64 {
        FxBuildHasher.hash_one(self.ids())
    }
}

/// An open span, and whether it is recorded in this window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) id: RegistryId,
    pub(super) recorded: bool,
}

impl SharedStack {
    /// The number of shared spans: one for each bit of `Stack::recorded`.
    const DEPTH: usize = 64;

    /// Returns the open spans, outermost first. If the thread is running, they may never all have been open at once.
    pub(super) fn ids(&self) -> Vec<RegistryId> {
        let depth = self.depth.load(Ordering::Acquire);
        self.ids[..depth].iter().map(|id| id.load(Ordering::Relaxed)).collect()
    }

    #[inline]
    pub(super) fn set_adopted(&self, origin: Option<Origin>) {
        self.adopted.1.store(origin.map_or(0, |origin| origin.at.0), Ordering::Relaxed);
        let thread = origin.map_or(0, |origin| origin.thread().as_u64() | u64::from(origin.batch()) << 32);
        self.adopted.0.store(thread, Ordering::Release);
    }

    /// Returns the origin that the thread has adopted. If the thread is running, its parts may come from two origins.
    pub(super) fn adopted(&self) -> Option<Origin> {
        let packed = self.adopted.0.load(Ordering::Acquire);
        let (thread, batch) = (packed & u64::from(u32::MAX), (packed >> 32) as u32);
        let at = Ticks(self.adopted.1.load(Ordering::Relaxed));
        (thread != 0).then(|| Origin::new(at, ThreadId::new(thread)).in_batch(batch))
    }
}

impl Stack {
    pub(super) fn new() -> (Self, Arc<SharedStack>) {
        let ids = [const { AtomicU64::new(0) }; SharedStack::DEPTH];
        let shared = Arc::new(SharedStack { ids, depth: AtomicUsize::new(0), adopted: Default::default() });
        (Self { depth: 0, recorded: 0, shared: Arc::clone(&shared), deep: Vec::new() }, shared)
    }

    /// The number of open spans.
    #[inline]
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The id of the span at this depth, counted from the outermost; `None` if there is none, or it is too deeply
    /// nested to be shared.
    #[inline]
    pub(super) fn at(&self, depth: usize) -> Option<RegistryId> {
        let slot = self.shared.ids.get(depth).filter(|_| depth < self.depth)?;
        Some(slot.load(Ordering::Relaxed))
    }

    #[inline]
    pub(super) fn push(&mut self, id: RegistryId, recorded: bool) {
        let Some(slot) = self.shared.ids.get(self.depth) else { return self.push_deep(id, recorded) };
        slot.store(id, Ordering::Relaxed);
        let bit = 1 << self.depth;
        self.recorded = if recorded { self.recorded | bit } else { self.recorded & !bit };
        self.depth += 1;
        self.shared.depth.store(self.depth, Ordering::Release);
    }

    #[cold]
    fn push_deep(&mut self, id: RegistryId, recorded: bool) {
        self.deep.push(Open { id, recorded });
        self.depth += 1;
    }

    /// Whether a span is open and recorded. Of one that is open several times, the innermost counts.
    pub(super) fn is_recorded(&self, id: RegistryId) -> bool {
        self.to_vec().iter().rfind(|open| open.id == id).is_some_and(|open| open.recorded)
    }

    /// Removes a span, and returns whether it is recorded; `None` if it is not open.
    #[inline]
    pub(super) fn pop(&mut self, id: RegistryId) -> Option<bool> {
        let top = self.depth.wrapping_sub(1);
        match self.shared.ids.get(top) {
            Some(slot) if slot.load(Ordering::Relaxed) == id => {
                self.depth = top;
                self.shared.depth.store(top, Ordering::Release);
                Some(self.recorded >> top & 1 == 1)
            }
            _ => self.pop_elsewhere(id),
        }
    }

    /// Removes a span that is deeply nested or exited out of order, which is rare enough to rebuild the stack.
    #[cold]
    fn pop_elsewhere(&mut self, id: RegistryId) -> Option<bool> {
        if let Some(open) = self.deep.pop_if(|open| open.id == id) {
            self.depth -= 1;
            return Some(open.recorded);
        }
        let mut open = self.to_vec();
        let index = open.iter().rposition(|open| open.id == id)?;
        let taken = open.remove(index);
        self.replace(&open);
        Some(taken.recorded)
    }

    /// Copies the ids of the open spans.
    pub(super) fn open_spans(&self) -> OpenSpans {
        let mut open = OpenSpans { ids: [0; SharedStack::DEPTH], depth: self.depth.min(SharedStack::DEPTH) };
        for (id, slot) in open.ids[..open.depth].iter_mut().zip(&self.shared.ids) {
            *id = slot.load(Ordering::Relaxed);
        }
        open
    }

    /// Returns the open spans, outermost first.
    pub(super) fn to_vec(&self) -> Vec<Open> {
        let outer = self.depth.min(SharedStack::DEPTH);
        let ids = self.shared.ids[..outer].iter().map(|id| id.load(Ordering::Relaxed));
        let outer = ids.enumerate().map(|(depth, id)| Open { id, recorded: self.recorded >> depth & 1 == 1 });
        outer.chain(self.deep.iter().copied()).collect()
    }

    /// Replaces the open spans.
    pub(super) fn replace(&mut self, open: &[Open]) {
        self.depth = 0;
        self.deep.clear();
        open.iter().for_each(|open| self.push(open.id, open.recorded));
        self.shared.depth.store(self.depth.min(SharedStack::DEPTH), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Open, SharedStack, Stack};
    use proptest::prelude::*;

    fn ids(stack: &Stack) -> Vec<u64> {
        stack.to_vec().iter().map(|open| open.id).collect()
    }

    #[test]
    fn the_innermost_comes_off_first() {
        let (mut stack, shared) = Stack::new();
        stack.push(1, true);
        stack.push(2, false);
        assert_eq!(shared.ids(), [1, 2]);
        assert_eq!((stack.pop(2), stack.pop(1), stack.pop(1)), (Some(false), Some(true), None));
        assert!(shared.ids().is_empty());
    }

    #[test]
    fn a_span_entered_twice_comes_off_once_at_a_time() {
        let (mut stack, _) = Stack::new();
        [5, 6, 5].into_iter().for_each(|id| stack.push(id, false));
        stack.pop(5);
        assert_eq!(ids(&stack), [5, 6]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]
        #[test]
        fn any_order_of_exits_leaves_what_is_open(
            turns in prop::collection::vec(
                (prop::option::weighted(0.4, any::<prop::sample::Index>()), any::<bool>()),
                0..300,
            ),
        ) {
            let (mut stack, shared) = Stack::new();
            let mut model: Vec<Open> = Vec::new();
            for (id, (exit, recorded)) in (1..).zip(turns) {
                match exit.filter(|_| !model.is_empty()) {
                    Some(index) => {
                        let open = model.remove(index.index(model.len()));
                        prop_assert_eq!(stack.pop(open.id), Some(open.recorded));
                    }
                    None => {
                        model.push(Open { id, recorded });
                        stack.push(id, recorded);
                    }
                }
                prop_assert_eq!(&stack.to_vec(), &model);
                let outer: Vec<_> = model.iter().take(SharedStack::DEPTH).map(|open| open.id).collect();
                prop_assert_eq!(shared.ids(), outer);
            }
        }
    }
}
