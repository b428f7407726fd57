//! A thread's lane: the stack of what is open there, and a bounded ring of records with one writer and one reader.
//!
//! Full means that a span is dropped whole and counted. So that no exit is ever missing, an enter is only written while the
//! ring has room for the exits of everything open besides.

#[cfg(feature = "tracing-opentelemetry")]
mod contexts;
mod reader;
#[cfg(test)]
mod tests;

pub(crate) use self::reader::LaneReader;

use super::{
    Control,
    call_attributor::{CallAttributor, DeviceWork},
    live::{Live, Told},
    stack::{Open, SharedStack, Stack},
};
use crate::{
    clock::Clock,
    recording::{Callsite, Origin, Record, RegistryId},
    thread::ThreadInfo,
    trace::{FieldData, Operation, TraceContext},
};
use rtrb::{Producer, RingBuffer};
use std::{
    backtrace::Backtrace,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// The writing end, owned by the thread.
#[derive(Debug)]
pub(super) struct Lane {
    profiler: u64,
    /// What the thread knows: when this changes, a window's edge has gone by.
    seen: Control,
    /// The window this lane last joined.
    window: Option<u32>,
    stack: Stack,
    /// On whose behalf the thread works.
    adopted: Option<Origin>,
    /// Whether the window has still to be told of that.
    owes_adopt: bool,
    /// Says so anew for each call, on threads that serve several others.
    deputy: Option<CallAttributor>,
    /// The latest watcher that was told of the thread.
    pub(super) told_watchers: u64,
    #[cfg(feature = "tracing-opentelemetry")]
    contexts: contexts::Contexts,
    /// Exits still to come of spans recorded in this window.
    owed: usize,
    /// Calls of a device's API that the thread is in, and that were made in this window.
    calls: u32,
    ring: Producer<Record>,
    /// Slots of the ring that are certainly free.
    room: usize,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    thread: ThreadInfo,
    /// The first window that the thread can have been in.
    first_window: u32,
    dropped: AtomicU64,
    stack: Arc<SharedStack>,
    /// One more than the window of the calls that the thread is in; 0 if it is in none.
    in_call: AtomicU32,
}

/// What the lane needs from outside to write about a span.
pub(super) struct Sources<'a, F> {
    pub(super) clock: &'a Clock,
    pub(super) live: &'a Live,
    /// How many windows the collector has handed on.
    pub(super) collected: &'a AtomicU32,
    pub(super) control: &'a AtomicU64,
    pub(super) callsite: F,
}

impl<F> Sources<'_, F> {
    /// The control word as it is now.
    #[inline]
    fn control(&self) -> Control {
        Control::from_u64(self.control.load(Ordering::Relaxed))
    }
}

/// Finds the callsite of a span that is alive.
pub(super) trait Resolve: Fn(RegistryId) -> Option<Callsite> {}

impl<F: Fn(RegistryId) -> Option<Callsite>> Resolve for F {}

impl Lane {
    pub(super) fn new(profiler: u64, control: Control, thread: ThreadInfo, capacity: usize) -> (Self, LaneReader) {
        let (producer, consumer) = RingBuffer::new(capacity);
        let (stack, shared_stack) = Stack::new();
        let shared = Arc::new(Shared {
            thread,
            first_window: control.window(),
            dropped: AtomicU64::new(0),
            stack: shared_stack,
            in_call: AtomicU32::new(0),
        });
        let lane = Self {
            profiler,
            seen: Control::waiting(control.window()),
            window: None,
            stack,
            adopted: None,
            owes_adopt: false,
            deputy: None,
            told_watchers: 0,
            #[cfg(feature = "tracing-opentelemetry")]
            contexts: contexts::Contexts::default(),
            owed: 0,
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

    /// Whether the profiler is gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.ring.is_abandoned()
    }

    /// While nothing is recorded, all there is to know is what is open. Returns false, having done nothing, if there is more to
    /// do: then [`enter`](Self::enter) does it.
    #[inline]
    pub(super) fn enter_unrecorded(&mut self, control: Control, id: RegistryId) -> bool {
        let usual = self.seen == control;
        if usual {
            self.stack.push(id, false);
        }
        usual
    }

    /// As [`enter_unrecorded`](Self::enter_unrecorded).
    #[inline]
    pub(super) fn exit_unrecorded(&mut self, control: Control, id: RegistryId) -> bool {
        let usual = self.seen == control;
        if usual {
            self.stack.pop(id);
        }
        usual
    }

    #[inline]
    pub(super) fn enter(
        &mut self,
        mut control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        mut backtrace: Option<Box<Backtrace>>,
        context: Option<TraceContext>,
    ) {
        let recorded = loop {
            let follows = self.follow(control, sources);
            if !control.is_recording() {
                break false;
            }
            // The clock is read only once there is room: it is what costs most. If the next window has begun meanwhile, the
            // span belongs there.
            let written = follows
                && self.write_enter(id, sources, &mut backtrace, context, |callsite| {
                    let at = sources.clock.now();
                    (sources.control() == control).then_some(Record::Enter { at, id, callsite })
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
    }

    #[inline]
    pub(super) fn exit(&mut self, control: Control, id: RegistryId, sources: &Sources<'_, impl Resolve>) {
        let follows = self.follow(control, sources);
        if self.stack.pop(id) == Some(true) && follows && control.is_recording() {
            self.owed -= 1;
            let at = sources.clock.now();
            self.write(Record::Exit { at, id });
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
        if self.follow(control, sources) && self.has_room(1 + fields.len()) {
            self.write(record);
            fields.drain(..).for_each(|field| self.write(Record::Field(field)));
        } else {
            self.count_drop();
        }
    }

    /// Writes that the thread was asked for an operation.
    #[inline]
    pub(super) fn write_operation(
        &mut self,
        mut control: Control,
        operation: &Arc<Operation>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        while control.is_recording() {
            // Two records, as in `write_or_count`; the clock is read only if there is room.
            let at = (self.follow(control, sources) && self.has_room(2)).then(|| sources.clock.now());
            let before = std::mem::replace(&mut control, sources.control());
            // If the next window has opened meanwhile, it belongs there; if this one has closed, the clock says where.
            if control == before || !control.is_recording() {
                return match at {
                    Some(at) => self.write_or_count(Record::Operation { at, operation: Arc::clone(operation) }),
                    None => self.count_drop(),
                };
            }
        }
    }

    /// Remembers on whose behalf the thread works from now on.
    #[inline]
    pub(super) fn adopt(&mut self, control: Control, origin: Option<Origin>, sources: &Sources<'_, impl Resolve>) {
        let follows = self.follow(control, sources);
        // Of this a window is told when the thread joins it.
        if self.adopted == origin {
            return;
        }
        self.adopted = origin;
        self.shared.stack.set_adopted(origin);
        if control.is_recording() {
            // If there is no room, it is written before the next call.
            self.owes_adopt = !(follows && self.has_room(1));
            if !self.owes_adopt {
                self.write(Record::Adopt(origin));
            }
        }
    }

    /// Remembers who is asked from now on, before each call, on whose behalf it is made.
    pub(super) fn ask_before_calls(&mut self, deputy: Option<CallAttributor>) {
        self.deputy = deputy;
    }

    /// Writes a call for the window that the lane last joined, even if that has closed meanwhile.
    #[inline]
    pub(super) fn write_call(&mut self, work: DeviceWork, record: Record) {
        if let Some(CallAttributor(whose)) = &self.deputy {
            let origin = whose(work);
            if self.adopted != origin {
                self.adopted = origin;
                self.shared.stack.set_adopted(origin);
                self.owes_adopt = true;
            }
        }
        self.write_or_count(record);
    }

    /// Begins a call in the window that is open, which is joined if that has not been done. Returns whether it could be.
    #[inline]
    pub(super) fn enter_call(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        let joined = self.follow(control, sources);
        if joined {
            let window = control.window() + 1;
            if self.shared.in_call.load(Ordering::Relaxed) != window {
                self.shared.in_call.store(window, Ordering::Relaxed);
                self.calls = 0;
            }
            self.calls += 1;
        } else {
            self.count_drop();
        }
        joined
    }

    /// Ends what [`enter_call`](Self::enter_call) began, once it has been written.
    #[inline]
    pub(super) fn leave_call(&mut self) {
        self.calls = self.calls.saturating_sub(1);
        if self.calls == 0 {
            // Whoever sees this sees what was written, too.
            self.shared.in_call.store(0, Ordering::Release);
        }
    }

    #[inline]
    fn write_or_count(&mut self, record: Record) {
        if !self.has_room(2) {
            return self.count_drop();
        }
        if std::mem::take(&mut self.owes_adopt) {
            self.write(Record::Adopt(self.adopted));
        }
        self.write(record);
    }

    /// Notices a window's edge. Returns whether the thread has joined the window that is open.
    #[inline]
    fn follow(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        self.seen == control || self.notice(control, sources)
    }

    #[cold]
    fn notice(&mut self, control: Control, sources: &Sources<'_, impl Resolve>) -> bool {
        // Through a window in which this thread did nothing, all was open that is open now. Once the thread goes on the
        // collector cannot see that any more, so tell it of those windows it has not come to yet.
        let missed = self.window.map_or(0, |window| window + 1).max(self.shared.first_window);
        let mut told = false;
        for window in missed.max(sources.collected.load(Ordering::Relaxed))..control.window() {
            let joined = self.join(window, sources);
            told |= joined;
            if !joined {
                self.stack.to_vec().iter().for_each(|_| self.count_drop());
            }
        }
        let joined = !control.is_recording() || self.join(control.window(), sources);
        told |= joined && control.is_recording();
        if told {
            self.write(Record::Told);
            self.owed -= 1;
        }
        if joined {
            self.seen = control;
        }
        joined
    }

    /// The first thing a thread writes in a window: what was open on it already, and on whose behalf it works.
    fn join(&mut self, window: u32, sources: &Sources<'_, impl Resolve>) -> bool {
        if !self.ring_has_room(3) {
            return false;
        }
        self.write(Record::Join { window });
        self.window = Some(window);
        // `Told` is owed, too.
        self.owed = 1;
        self.owes_adopt = false;
        if self.adopted.is_some() {
            self.write(Record::Adopt(self.adopted));
        }
        self.forget_contexts();
        let mut open = self.stack.to_vec();
        for Open { id, recorded } in &mut open {
            let id = *id;
            let asked = self.asked_context(window, id);
            let open = |callsite| Some(Record::Open { id, callsite });
            *recorded = self.write_enter(id, sources, &mut None, asked.flatten(), open);
            if *recorded {
                self.settle_context(id, asked);
            } else {
                self.count_drop();
            }
        }
        self.stack.lay(&open);
        true
    }

    /// Writes that a span is open from here on, with its fields, if it fits together with its exit and there still is something
    /// to write.
    #[inline]
    fn write_enter(
        &mut self,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        backtrace: &mut Option<Box<Backtrace>>,
        context: Option<TraceContext>,
        record: impl FnOnce(Callsite) -> Option<Record>,
    ) -> bool {
        let Some(callsite) = (sources.callsite)(id) else { return false };
        let window = self.window;
        let extra = usize::from(backtrace.is_some()) + usize::from(context.is_some());
        let write = |fields: Told<'_>| {
            let records = match fields {
                Told::Each(fields) => fields.len(),
                Told::Shared(_) => 1,
            };
            let room = self.has_room(2 + records + extra);
            let Some(record) = room.then(|| record(callsite)).flatten() else { return false };
            self.write(record);
            match fields {
                Told::Each(fields) => fields.iter().for_each(|field| self.write(Record::Field(field.clone()))),
                Told::Shared(fields) => self.write(Record::Fields(Arc::clone(fields))),
            }
            true
        };
        let written = match callsite.fields().is_empty() {
            true => write(Told::Each(&[])),
            false => sources.live.enter(id, window, write),
        };
        if !written {
            return false;
        }
        self.owed += 1;
        if let Some(context) = context {
            self.write(Record::of_context(context));
        }
        if let Some(backtrace) = backtrace.take() {
            self.write(Record::Backtrace(backtrace));
        }
        true
    }

    /// Whether `records` fit beside what is owed.
    #[inline]
    fn has_room(&mut self, records: usize) -> bool {
        self.ring_has_room(self.owed + records)
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
        // Every caller has made sure of the room.
        self.room = self.room.saturating_sub(1);
        if self.ring.push(record).is_err() {
            debug_assert!(false, "no room in the lane");
            self.count_drop();
        }
    }

    // Where there is no layer to ask, nothing is to be told.

    #[cfg(not(feature = "tracing-opentelemetry"))]
    fn asked_context(&self, _: u32, _: RegistryId) -> Option<Option<TraceContext>> {
        None
    }

    #[cfg(not(feature = "tracing-opentelemetry"))]
    fn settle_context(&mut self, _: RegistryId, _: Option<Option<TraceContext>>) {}

    #[cfg(not(feature = "tracing-opentelemetry"))]
    fn forget_contexts(&mut self) {}

    #[cold]
    fn count_drop(&self) {
        self.shared.dropped.fetch_add(1, Ordering::Relaxed);
    }
}
