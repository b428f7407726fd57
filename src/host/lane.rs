//! A thread's lane: the stack of what is open there, and a bounded ring of records with one writer and one reader.
//!
//! Full means that a span is dropped whole and counted. So that no exit is ever missing, an enter is only written while the
//! ring has room for the exits of everything open besides.

use super::{
    Control, RegistryId, ThreadInfo,
    live::Live,
    record::Callsite,
    record::Record,
    stack::{Open, SharedStack, Stack},
};
use crate::{
    clock::{Clock, Ticks},
    trace::FieldData,
};
use rtrb::{Consumer, Producer, RingBuffer};
use std::{
    backtrace::Backtrace,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The writing end, owned by the thread.
#[derive(Debug)]
pub(super) struct Lane {
    profiler: u64,
    /// The window this lane last joined.
    window: Option<u32>,
    stack: Stack,
    /// Exits still to come of spans recorded in this window.
    owed: usize,
    ring: Producer<Record>,
    /// Slots of the ring that are certainly free.
    room: usize,
    shared: Arc<Shared>,
}

/// The reading end, owned by the collector.
#[derive(Debug)]
pub(crate) struct LaneReader {
    ring: Consumer<Record>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    thread: ThreadInfo,
    dropped: AtomicU64,
    stack: Arc<SharedStack>,
}

/// What the lane needs from outside to write about a span.
pub(super) struct Sources<'a, F> {
    pub(super) clock: &'a Clock,
    pub(super) live: &'a Live,
    pub(super) callsite: F,
}

impl Lane {
    pub(super) fn new(profiler: u64, thread: ThreadInfo, capacity: usize) -> (Self, LaneReader) {
        let (producer, consumer) = RingBuffer::new(capacity);
        let (stack, shared_stack) = Stack::new();
        let shared = Arc::new(Shared { thread, dropped: AtomicU64::new(0), stack: shared_stack });
        let lane =
            Self { profiler, window: None, stack, owed: 0, ring: producer, room: 0, shared: Arc::clone(&shared) };
        (lane, LaneReader { ring: consumer, shared })
    }

    pub(super) fn profiler(&self) -> u64 {
        self.profiler
    }

    /// Whether the profiler is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// While nothing is recorded, all there is to know is what is open.
    #[inline]
    pub(super) fn enter_unrecorded(&mut self, id: RegistryId) {
        self.stack.push(id, false);
    }

    #[inline]
    pub(super) fn exit_unrecorded(&mut self, id: RegistryId) {
        self.stack.pop(id);
    }

    #[inline]
    pub(super) fn enter(
        &mut self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
        backtrace: Option<Box<Backtrace>>,
    ) {
        let recorded = self.join(control, sources)
            && (sources.callsite)(id).is_some_and(|callsite| {
                // The clock is read only once there is room: it is what costs most.
                self.write_enter(id, callsite, sources, backtrace, || {
                    let at = sources.clock.now();
                    Record::Enter { at, id, callsite }
                })
            });
        self.stack.push(id, recorded);
    }

    #[inline]
    pub(super) fn exit(
        &mut self,
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
    ) {
        let joined = self.join(control, sources);
        if self.stack.pop(id) == Some(true) && joined {
            self.owed -= 1;
            let at = sources.clock.now();
            self.write(Record::Exit { at, id });
        }
    }

    pub(super) fn event(
        &mut self,
        control: Control,
        callsite: Callsite,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
    ) {
        self.write_moment(control, fields, sources, |at| Record::Event { at, callsite });
    }

    /// Writes fields recorded on a span that was entered in this window.
    pub(super) fn update(
        &mut self,
        control: Control,
        id: RegistryId,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
    ) {
        self.write_moment(control, fields, sources, |at| Record::Update { at, id });
    }

    fn write_moment(
        &mut self,
        control: Control,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
        record: impl FnOnce(Ticks) -> Record,
    ) {
        if self.join(control, sources) && self.has_room(1 + fields.len()) {
            self.write(record(sources.clock.now()));
            fields.drain(..).for_each(|field| self.write(Record::Field(field)));
        } else {
            self.count_drop();
        }
    }

    #[inline]
    fn join(&mut self, control: Control, sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>) -> bool {
        self.window == Some(control.window()) || self.join_now(control.window(), sources)
    }

    /// The first thing a thread writes in a window: what was open on it already.
    #[cold]
    fn join_now(&mut self, window: u32, sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>) -> bool {
        self.owed = 0;
        if !self.has_room(1) {
            self.count_drop();
            return false;
        }
        self.write(Record::Join { window });
        self.window = Some(window);
        let mut open = self.stack.to_vec();
        for Open { id, recorded } in &mut open {
            let (id, callsite) = (*id, (sources.callsite)(*id));
            *recorded = callsite.is_some_and(|callsite| {
                self.write_enter(id, callsite, sources, None, || Record::Open { id, callsite })
            });
        }
        self.stack.lay(&open);
        true
    }

    /// Writes that a span is open from here on, with its fields, if it fits together with its exit.
    #[inline]
    fn write_enter(
        &mut self,
        id: RegistryId,
        callsite: Callsite,
        sources: &Sources<'_, impl Fn(RegistryId) -> Option<Callsite>>,
        backtrace: Option<Box<Backtrace>>,
        record: impl FnOnce() -> Record,
    ) -> bool {
        let window = self.window;
        let extra = usize::from(backtrace.is_some());
        let write = |fields: &[FieldData]| {
            let room = self.has_room(2 + fields.len() + extra);
            if room {
                self.write(record());
                fields.iter().for_each(|field| self.write(Record::Field(field.clone())));
            }
            room
        };
        let written = match callsite.fields().is_empty() {
            true => write(&[]),
            false => sources.live.enter(id, window, write),
        };
        if !written {
            self.count_drop();
            return false;
        }
        self.owed += 1;
        if let Some(backtrace) = backtrace {
            self.write(Record::Backtrace(backtrace));
        }
        true
    }

    /// Whether `records` fit beside the exits that are owed.
    #[inline]
    fn has_room(&mut self, records: usize) -> bool {
        let needed = self.owed + records;
        if self.room < needed {
            self.room = self.ring.slots();
        }
        self.room >= needed
    }

    #[inline]
    fn write(&mut self, record: Record) {
        // Every caller has made sure of the room.
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

impl LaneReader {
    pub(crate) fn thread(&self) -> &ThreadInfo {
        &self.shared.thread
    }

    /// The next record, if there is one.
    #[inline]
    pub(crate) fn read(&mut self) -> Option<Record> {
        self.ring.pop().ok()
    }

    /// Whether the thread is gone.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// Spans and events dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.shared.dropped.swap(0, Ordering::Relaxed)
    }

    /// What is open on the thread now, as records. Read twice: what both readings show was open in between, and a span that
    /// is open is alive, so that its id is its own.
    pub(super) fn open_spans(&self, callsite: impl Fn(RegistryId) -> Option<Callsite>, live: &Live) -> Vec<Record> {
        let ids = self.shared.stack.ids();
        let mut records = Vec::new();
        for &id in &ids {
            let Some(callsite) = callsite(id) else { continue };
            records.push(Record::Open { id, callsite });
            live.with(id, |entry| records.extend(entry.fields.iter().cloned().map(Record::Field)));
        }
        if ids == self.shared.stack.ids() { records } else { Vec::new() }
    }
}
