//! A thread's lane: the stack of its open spans, and a bounded ring of records with one writer and one reader.
//!
//! When the ring is full, a span is dropped as a whole and counted. So that no exit is ever missing, an enter is
//! written only while the ring also has room for the exits of all open spans. [`join`] handles windows that open and
//! close, [`calls`] writes device API calls and framework operations.

mod calls;
mod cpu_time;
mod join;
mod otel_contexts;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use self::reader::LaneReader;

use self::otel_contexts::LaneContexts;
use super::{
    Control,
    call_attributor::CallAttributor,
    live::{EnterFields, Live},
    stack::{OpenSpans, SharedStack, Stack},
};
use crate::{
    clock::Clock,
    heap,
    recording::{Callsite, Origin, Record, RegistryId},
    thread::ThreadInfo,
    trace::{FieldData, HeapUse, TraceContext},
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    backtrace::Backtrace,
    num::NonZeroU64,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// Both ends of an empty ring.
pub(super) type Ring = (Producer<Record>, Consumer<Record>);

/// The writing end of a lane, owned by its thread.
#[derive(Debug)]
pub(super) struct Lane {
    profiler: u64,
    /// The control word that the thread saw last. If it has changed, a window has opened or closed since.
    seen: Control,
    /// The window this lane last joined.
    window: Option<u32>,
    stack: Stack,
    /// The origin that the thread's calls are attributed to, if not to its own spans.
    adopted: Option<Origin>,
    /// Whether the adopted origin still has to be written in this window.
    adopt_pending: bool,
    /// The callback that decides the origin of each call, on threads that serve several others.
    attributor: Option<CallAttributor>,
    /// The number of the latest watcher called for the thread.
    pub(super) latest_watcher: u64,
    contexts: LaneContexts,
    /// What the thread had allocated and freed on the heap when that was last written.
    heap: HeapUse,
    /// The number of slots reserved for records to come: the exits of spans recorded in this window.
    reserved: usize,
    /// The number of slots that only outer spans may take.
    kept_for_outer: usize,
    /// The number of nested device API calls that the thread is in and that were made in this window.
    calls: u32,
    ring: Producer<Record>,
    /// The number of free slots in the ring when last counted, minus those written since.
    room: usize,
    shared: Arc<Shared>,
}

/// The part of a lane shared by its thread and the collector.
#[derive(Debug)]
struct Shared {
    thread: ThreadInfo,
    /// The first window that the thread may have been in.
    first_window: u32,
    dropped: AtomicU64,
    stack: Arc<SharedStack>,
    /// One more than the window of the calls that the thread is in; 0 if it is in none.
    in_call: AtomicU32,
    /// The writing end of the ring, once the thread has ended.
    returned: Mutex<Option<Producer<Record>>>,
}

impl Shared {
    fn lock_returned(&self) -> MutexGuard<'_, Option<Producer<Record>>> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The parts of the host that a lane needs to write about spans.
pub(super) struct Sources<'a, F> {
    pub(super) clock: &'a Clock,
    pub(super) live: &'a Live,
    /// The number of windows that the collector has passed on.
    pub(super) collected: &'a AtomicU32,
    pub(super) control: &'a AtomicU64,
    pub(super) find: F,
}

impl<F> Sources<'_, F> {
    /// Reads the control word.
    #[inline]
    fn control(&self) -> Control {
        Control::from_u64(self.control.load(Ordering::Relaxed))
    }
}

/// A span that was found by its id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) callsite: Callsite,
    /// The span that was current where this one was created, if there was one.
    pub(super) made_in: Option<NonZeroU64>,
}

/// A function that finds a live span.
pub(super) trait Resolve: Fn(RegistryId) -> Option<Found> {}

impl<F: Fn(RegistryId) -> Option<Found>> Resolve for F {}

impl Lane {
    /// The fraction of a lane that events, operations and calls leave to spans. Each level of spans leaves half of the
    /// remainder to those around it: of the default capacity, a span nested in two others leaves room for 1,500.
    const OUTER_SHARE: usize = 16;
    /// The number of spans, from the inside out, that are searched for the span around an enter. A model is made in one
    /// or two; tasks that start one another may have any number, and each lookup takes 30 ns.
    const MADE_IN: usize = 8;

    /// Returns an empty ring of this capacity.
    pub(super) fn ring(capacity: usize) -> Ring {
        RingBuffer::new(capacity)
    }

    /// The spans that are open on the thread.
    pub(super) fn open_spans(&self) -> OpenSpans {
        self.stack.open_spans()
    }

    pub(super) fn new(profiler: u64, control: Control, thread: ThreadInfo, ring: Ring) -> (Self, LaneReader) {
        let (producer, consumer) = ring;
        let (stack, shared_stack) = Stack::new();
        let shared = Arc::new(Shared {
            thread,
            first_window: control.window(),
            dropped: AtomicU64::new(0),
            stack: shared_stack,
            in_call: AtomicU32::new(0),
            returned: Mutex::new(None),
        });
        let lane = Self {
            profiler,
            seen: Control::waiting(control.window()),
            window: None,
            stack,
            adopted: None,
            adopt_pending: false,
            attributor: None,
            latest_watcher: 0,
            contexts: LaneContexts::default(),
            heap: HeapUse::default(),
            reserved: 0,
            kept_for_outer: producer.buffer().capacity() / Self::OUTER_SHARE,
            calls: 0,
            ring: producer,
            room: 0,
            shared: Arc::clone(&shared),
        };
        (lane, LaneReader::new(consumer, shared))
    }

    pub(super) fn profiler(&self) -> u64 {
        self.profiler
    }

    /// Returns the innermost open span, which may be none; `None` if it is too deeply nested.
    #[inline]
    pub(super) fn innermost(&self) -> Option<Option<NonZeroU64>> {
        match self.stack.depth().checked_sub(1) {
            Some(depth) => self.stack.at(depth).map(NonZeroU64::new),
            None => Some(None),
        }
    }

    /// Whether the profiler is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// Enters a span while nothing is recorded, which changes only the stack. Returns false, having done nothing, if a
    /// window has opened or closed: then [`enter`](Self::enter) must be called.
    #[inline]
    pub(super) fn enter_unrecorded(&mut self, control: Control, id: RegistryId) -> bool {
        let usual = self.seen == control;
        if usual {
            self.stack.push(id, false);
        }
        usual
    }

    /// Exits a span while nothing is recorded, as [`enter_unrecorded`](Self::enter_unrecorded) enters one.
    #[inline]
    pub(super) fn exit_unrecorded(&mut self, control: Control, id: RegistryId) -> bool {
        let usual = self.seen == control;
        if usual {
            self.stack.pop(id);
        }
        usual
    }

    /// Enters a span. Returns whether it is recorded.
    #[inline]
    pub(super) fn enter(
        &mut self,
        mut control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        mut backtrace: Option<Box<Backtrace>>,
        context: Option<TraceContext>,
    ) -> bool {
        let depth = self.stack.depth();
        let recorded = loop {
            let follows = self.follow(control, sources);
            if !control.is_recording() {
                break false;
            }
            // The clock is read only once there is room, since that is the most expensive part. If the next window has
            // begun meanwhile, the span belongs there.
            let written = follows
                && self.write_enter(id, depth, sources, &mut backtrace, context, |callsite, made_outside| {
                    let at = sources.clock.now();
                    (sources.control() == control).then_some(match made_outside {
                        true => Record::EnterKept { at, id, callsite },
                        false => Record::Enter { at, id, callsite },
                    })
                });
            if written || sources.control() == control {
                break written;
            }
            control = sources.control();
        };
        if control.is_recording() && !recorded {
            self.count_drop();
        }
        self.stack.push(id, recorded);
        recorded
    }

    #[inline]
    pub(super) fn exit(&mut self, control: Control, id: RegistryId, sources: &Sources<'_, impl Resolve>) {
        let follows = self.follow(control, sources);
        if self.stack.pop(id) == Some(true) && follows && control.is_recording() {
            self.reserved -= 1;
            let at = sources.clock.now();
            self.write(Record::Exit { at, id });
        }
    }

    /// Writes what the thread has allocated and freed on the heap since this was last written, or since it joined the
    /// window: it belongs to the innermost span that is open now.
    pub(super) fn note_heap(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) {
        if !self.follow(control, sources) {
            return self.count_drop();
        }
        let now = heap::of_this_thread();
        let used = now - std::mem::replace(&mut self.heap, now);
        if used.is_nothing() {
            return;
        }
        if self.has_room(1) {
            self.write(Record::Heap(used));
        } else {
            self.count_drop();
        }
    }

    /// Writes an event, or fields recorded on a span that was entered in this window.
    pub(super) fn write_moment(
        &mut self,
        control: Control,
        record: Record,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        if self.follow(control, sources) && self.has_room_inside(1 + fields.len()) {
            self.write(record);
            fields.drain(..).for_each(|field| self.write(Record::Field(field)));
        } else {
            self.count_drop();
        }
    }

    /// Writes that a span is open from here on, with its fields. Returns false, having written nothing, if they do not
    /// fit together with the exit, or if `record` returns `None`. `depth` is the number of spans around it. `record`
    /// also receives whether the span was [made outside](Record::EnterKept) the one around it.
    #[inline]
    fn write_enter(
        &mut self,
        id: RegistryId,
        depth: usize,
        sources: &Sources<'_, impl Resolve>,
        backtrace: &mut Option<Box<Backtrace>>,
        context: Option<TraceContext>,
        record: impl FnOnce(Callsite, bool) -> Option<Record>,
    ) -> bool {
        let Some(Found { callsite, made_in }) = (sources.find)(id) else { return false };
        let made_outside = depth > 0 && self.is_made_outside(made_in, depth - 1, &sources.find);
        let made_in = made_in.filter(|_| depth == 0);
        let parent = if sources.live.has_parents() { sources.live.parent(id).or(made_in) } else { made_in };
        let window = self.window;
        let kept = self.kept_for_outer - (self.kept_for_outer >> depth.min(63));
        let extra = usize::from(backtrace.is_some()) + usize::from(context.is_some()) + usize::from(parent.is_some());
        let write = |fields: EnterFields<'_>| {
            let records = match fields {
                EnterFields::Each(fields) => fields.len(),
                EnterFields::Shared(_) => 1,
            };
            let room = self.has_room(2 + records + extra + kept);
            let Some(record) = room.then(|| record(callsite, made_outside)).flatten() else { return false };
            self.write(record);
            match fields {
                EnterFields::Each(fields) => fields.iter().for_each(|field| self.write(Record::Field(field.clone()))),
                EnterFields::Shared(fields) => self.write(Record::Fields(Arc::clone(fields))),
            }
            true
        };
        let written = match callsite.fields().is_empty() {
            true => write(EnterFields::Each(&[])),
            false => sources.live.enter(id, window, write),
        };
        if !written {
            return false;
        }
        self.reserved += 1;
        if let Some(id) = parent {
            self.write(Record::Parent { id });
        }
        if let Some(context) = context {
            self.write(Record::of_context(context));
        }
        if let Some(backtrace) = backtrace.take() {
            self.write(Record::Backtrace(backtrace));
        }
        true
    }

    /// Whether a span that was made in `made_in` was made outside the open span at this depth.
    #[inline]
    fn is_made_outside(&self, made_in: Option<NonZeroU64>, depth: usize, find: &impl Resolve) -> bool {
        // Most spans are made where they are entered.
        let around = self.stack.at(depth);
        around.is_some() && around != made_in.map(NonZeroU64::get) && self.is_older(made_in, depth, find)
    }

    /// Whether a span that was made in `made_in` was not made in the open span at this depth, or in one made there.
    fn is_older(&self, made_in: Option<NonZeroU64>, depth: usize, find: &impl Resolve) -> bool {
        let mut next = made_in;
        for _ in 0..Self::MADE_IN {
            let Some(outer) = next.map(NonZeroU64::get) else { return true };
            if let Some(open) = (0..=depth).rev().find(|&open| self.stack.at(open) == Some(outer)) {
                return open < depth;
            }
            next = find(outer).and_then(|found| found.made_in);
        }
        false
    }

    /// Whether `records` fit in addition to the reserved slots and those kept for outer spans.
    #[inline]
    fn has_room_inside(&mut self, records: usize) -> bool {
        self.has_room(records + self.kept_for_outer)
    }

    /// Whether `records` fit in addition to the reserved slots.
    #[inline]
    fn has_room(&mut self, records: usize) -> bool {
        self.ring_has_room(self.reserved + records)
    }

    #[inline]
    fn ring_has_room(&mut self, records: usize) -> bool {
        if self.room < records {
            self.room = self.ring.slots();
        }
        self.room >= records
    }

    #[inline]
    fn write(&mut self, record: Record) {
        // Every caller has checked that there is room.
        self.room = self.room.saturating_sub(1);
        if self.ring.push(record).is_err() {
            debug_assert!(false, "no room in the lane");
            self.count_drop();
        }
    }

    #[cold]
    fn count_drop(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Lane {
    /// Returns the writing end of the ring to the collector when the thread has ended.
    fn drop(&mut self) {
        let (unused, _) = RingBuffer::new(0);
        let ring = std::mem::replace(&mut self.ring, unused);
        *self.shared.lock_returned() = Some(ring);
    }
}
