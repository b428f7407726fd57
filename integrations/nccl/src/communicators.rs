//! All communicators of the process, and the profilers that are told of their calls.

use crate::ring::{Call, CallKind, Ring, now};
use kernspan::{analysis::MemoryFrame, framework::HandOver};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// The communicators of this process. NCCL loads one plugin for all.
pub(crate) static COMMUNICATORS: Communicators = Communicators::new();

/// All communicators.
#[derive(Debug)]
pub(crate) struct Communicators {
    slots: RwLock<Slots>,
    /// The last communicators that ended with calls unfinished, as one does that is aborted because it hangs.
    closed: Mutex<VecDeque<Arc<Communicator>>>,
    profilers: RwLock<Vec<(u64, HandOver)>>,
    /// Whether the events of a kernel's channels are not wanted.
    no_channels: AtomicBool,
    counters: Counters,
}

#[derive(Debug)]
struct Slots {
    all: Vec<Slot>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Slot {
    /// The number of communicators that the slot has had.
    generation: u64,
    /// The id of the next call in the slot's ring.
    next: u64,
    communicator: Option<Arc<Communicator>>,
}

/// A communicator of NCCL.
#[derive(Debug)]
pub(crate) struct Communicator {
    /// NCCL's number, the same on all ranks.
    pub(crate) hash: u64,
    /// The number as text.
    pub(crate) group: Arc<str>,
    /// The name that the program has given it, or an empty one.
    pub(crate) name: String,
    pub(crate) nodes: u32,
    pub(crate) ranks: u32,
    pub(crate) rank: u32,
    ring: Mutex<Ring>,
    /// When it ended; 0 if it has not.
    closed: AtomicU64,
}

#[derive(Debug)]
struct Counters {
    communicators: AtomicU64,
    collectives: AtomicU64,
    point_to_point: AtomicU64,
    channels: AtomicU64,
    unfollowed: AtomicU64,
}

/// The number of events of NCCL since the program began: see [`Plugin::counts`](crate::Plugin::counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Communicators that were made.
    pub communicators: u64,
    /// Collectives that were launched.
    pub collectives: u64,
    /// Sends and receives that were launched.
    pub point_to_point: u64,
    /// Channels of kernels that started.
    pub channels: u64,
    /// Communicators that are not followed, since there are too many.
    pub unfollowed: u64,
}

/// An event, as the number that NCCL keeps as a pointer: the slot of its communicator in the lower bits, then the id of
/// its call, then its kind. A number that is out of date, or was never given, finds no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) kind: HandleKind,
    slot: usize,
    id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    /// A call by the program.
    Entered = 1,
    /// A call that was launched.
    Launched = 2,
    /// A channel of a kernel.
    Channel = 3,
}

impl Handle {
    /// The handle of all groups, which have no state.
    pub(crate) const GROUP: u64 = 4 << Self::KIND_SHIFT;

    const SLOT_BITS: u32 = 20;
    const KIND_SHIFT: u32 = 60;

    fn as_u64(self) -> u64 {
        let id = self.id & ((1 << (Self::KIND_SHIFT - Self::SLOT_BITS)) - 1);
        (self.kind as u64) << Self::KIND_SHIFT | id << Self::SLOT_BITS | self.slot as u64
    }

    pub(crate) fn from_u64(number: u64) -> Option<Self> {
        let kind = match number >> Self::KIND_SHIFT {
            1 => HandleKind::Entered,
            2 => HandleKind::Launched,
            3 => HandleKind::Channel,
            _ => return None,
        };
        let below = number & ((1 << Self::KIND_SHIFT) - 1);
        let slot = usize::try_from(below & ((1 << Self::SLOT_BITS) - 1)).ok()?;
        Some(Self { kind, slot, id: below >> Self::SLOT_BITS })
    }
}

impl Communicators {
    /// The maximum number of communicators at a time that are followed. A full ring takes some 24 KiB, if calls are
    /// made in three spans, so that all take 400 MiB at most; a large job has some hundred.
    const MOST: usize = 1 << 14;
    /// The number of ended communicators that are kept.
    const CLOSED: usize = 16;

    const fn new() -> Self {
        Self {
            slots: RwLock::new(Slots { all: Vec::new(), free: Vec::new() }),
            closed: Mutex::new(VecDeque::new()),
            profilers: RwLock::new(Vec::new()),
            no_channels: AtomicBool::new(false),
            counters: Counters {
                communicators: AtomicU64::new(0),
                collectives: AtomicU64::new(0),
                point_to_point: AtomicU64::new(0),
                channels: AtomicU64::new(0),
                unfollowed: AtomicU64::new(0),
            },
        }
    }

    /// Adds a communicator, and returns its context; 0 if there are too many.
    pub(crate) fn open(&self, hash: u64, name: String, nodes: u32, ranks: u32, rank: u32) -> u64 {
        count(&self.counters.communicators);
        let group = format!("{hash:016x}").into();
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let free = slots.free.pop().or_else(|| {
            let new = slots.all.len();
            (new < Self::MOST).then(|| slots.all.push(Slot::default())).map(|()| new)
        });
        let Some(index) = free else {
            count(&self.counters.unfollowed);
            return 0;
        };
        let slot = &mut slots.all[index];
        slot.generation += 1;
        let (ring, closed) = (Mutex::new(Ring::new(slot.next)), AtomicU64::new(0));
        slot.communicator = Some(Arc::new(Communicator { hash, group, name, nodes, ranks, rank, ring, closed }));
        slot.generation << Handle::SLOT_BITS | index as u64
    }

    /// Ends a communicator.
    pub(crate) fn close(&self, context: u64) {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let Some((index, slot)) = slots.of_context(context) else { return };
        let Some(communicator) = slot.communicator.take() else { return };
        let ring = communicator.ring();
        slot.next = ring.next;
        let unfinished = ring.entries().any(|entry| entry.finished.is_none());
        drop(ring);
        slots.free.push(index);
        drop(slots);
        communicator.closed.store(now(), Ordering::Relaxed);
        if unfinished {
            let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            if closed.len() >= Self::CLOSED {
                closed.pop_front();
            }
            closed.push_back(communicator);
        }
    }

    /// Adds a call that the program makes on this thread. Returns its handle.
    pub(crate) fn entered(&self, context: u64, call: Call) -> u64 {
        let Some((slot, communicator)) = self.of_context(context) else { return 0 };
        let spans = self.open_spans();
        let id = communicator.ring().enter(call, now(), spans);
        Handle { kind: HandleKind::Entered, slot, id }.as_u64()
    }

    /// Adds a call whose kernel this thread has just launched, and tells the profilers of it. `parent` is the handle of
    /// the program's call, if there is one. Returns its handle.
    pub(crate) fn launched(&self, context: u64, parent: u64, call: Call) -> u64 {
        let Some((slot, communicator)) = self.of_context(context) else { return 0 };
        let is_collective = call.kind != CallKind::PointToPoint;
        count(if is_collective { &self.counters.collectives } else { &self.counters.point_to_point });
        if call.kind != CallKind::CopyEngine {
            let Communicator { hash, group, name, ranks, rank, .. } = &*communicator;
            let describe = || Arc::new(call.collective(*hash, group, name, *ranks, *rank));
            self.each_profiler(|profiler| profiler.collective(describe));
        }
        let now = now();
        let entered = Handle::from_u64(parent);
        let entered = entered.filter(|handle| handle.kind == HandleKind::Entered && handle.slot == slot);
        let known = entered.filter(|handle| communicator.ring().launch(handle.id, &call, now));
        let id = known.map_or_else(
            || {
                let spans = self.open_spans();
                let mut ring = communicator.ring();
                let id = ring.enter(call.clone(), now, spans);
                ring.launch(id, &call, now);
                id
            },
            |handle| handle.id,
        );
        Handle { kind: HandleKind::Launched, slot, id }.as_u64()
    }

    /// Marks a channel of a launched call as started. Returns the channel's handle.
    pub(crate) fn started(&self, launched: u64) -> u64 {
        let Some(handle) = Handle::from_u64(launched).filter(|handle| handle.kind == HandleKind::Launched) else {
            return 0;
        };
        let Some(communicator) = self.of_slot(handle.slot) else { return 0 };
        count(&self.counters.channels);
        communicator.ring().start(handle.id, now());
        Handle { kind: HandleKind::Channel, ..handle }.as_u64()
    }

    /// Marks a channel as finished.
    pub(crate) fn finished(&self, channel: u64) {
        let Some(handle) = Handle::from_u64(channel) else { return };
        if let Some(communicator) = self.of_slot(handle.slot) {
            communicator.ring().finish(handle.id, now());
        }
    }

    /// The communicators that are open, then those that ended with unfinished calls.
    pub(crate) fn all(&self) -> Vec<Arc<Communicator>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<_> = slots.all.iter().filter_map(|slot| slot.communicator.clone()).collect();
        drop(slots);
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        open.into_iter().chain(closed.iter().cloned()).collect()
    }

    /// The number of events so far.
    pub(crate) fn counts(&self) -> Counts {
        let Counters { communicators, collectives, point_to_point, channels, unfollowed } = &self.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            communicators: read(communicators),
            collectives: read(collectives),
            point_to_point: read(point_to_point),
            channels: read(channels),
            unfollowed: read(unfollowed),
        }
    }

    /// Returns which of the events of an interface are wanted.
    pub(crate) fn events(&self, all: u64, channels: u64) -> u64 {
        if self.has_channels() { all } else { all & !channels }
    }

    /// Sets whether the channels of kernels have events, in communicators made from now on.
    pub(crate) fn set_channels(&self, wanted: bool) {
        self.no_channels.store(!wanted, Ordering::Relaxed);
    }

    /// Whether the channels of kernels have events.
    pub(crate) fn has_channels(&self) -> bool {
        !self.no_channels.load(Ordering::Relaxed)
    }

    /// Tells a profiler of all calls from now on. Returns a number with which that ends.
    pub(crate) fn add_profiler(&self, profiler: HandOver) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.profilers.write().unwrap_or_else(PoisonError::into_inner).push((number, profiler));
        number
    }

    pub(crate) fn remove_profiler(&self, number: u64) {
        self.profilers.write().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != number);
    }

    fn each_profiler(&self, mut f: impl FnMut(&HandOver)) {
        self.profilers.read().unwrap_or_else(PoisonError::into_inner).iter().for_each(|(_, profiler)| f(profiler));
    }

    /// The spans that are open on this thread, by the first profiler that sees any.
    fn open_spans(&self) -> Vec<MemoryFrame> {
        let mut spans = Vec::new();
        self.each_profiler(|profiler| {
            if spans.is_empty() {
                spans = profiler.open_spans();
            }
        });
        spans
    }

    fn of_context(&self, context: u64) -> Option<(usize, Arc<Communicator>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let index = index_of(context);
        let slot = slots.all.get(index).filter(|slot| slot.generation == context >> Handle::SLOT_BITS)?;
        Some((index, slot.communicator.clone()?))
    }

    fn of_slot(&self, index: usize) -> Option<Arc<Communicator>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        slots.all.get(index)?.communicator.clone()
    }
}

impl Slots {
    fn of_context(&mut self, context: u64) -> Option<(usize, &mut Slot)> {
        let index = index_of(context);
        let slot = self.all.get_mut(index).filter(|slot| slot.generation == context >> Handle::SLOT_BITS)?;
        Some((index, slot))
    }
}

impl Communicator {
    /// The last calls. The lock is held for well below a microsecond, and never while NCCL is called.
    pub(crate) fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When it ended, if it has.
    pub(crate) fn closed(&self) -> Option<u64> {
        Some(self.closed.load(Ordering::Relaxed)).filter(|at| *at > 0)
    }
}

fn index_of(context: u64) -> usize {
    usize::try_from(context & ((1 << Handle::SLOT_BITS) - 1)).unwrap_or(usize::MAX)
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
