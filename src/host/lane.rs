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
    /// The first window that the thread can have been in.
    first_window: u32,
    dropped: AtomicU64,
    stack: Arc<SharedStack>,
}

/// What the lane needs from outside to write about a span.
pub(super) struct Sources<'a, F> {
    pub(super) clock: &'a Clock,
    pub(super) live: &'a Live,
    /// How many windows the collector has handed on.
    pub(super) collected: &'a AtomicU32,
    pub(super) callsite: F,
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
        });
        let lane = Self {
            profiler,
            seen: Control::waiting(control.window()),
            window: None,
            stack,
            owed: 0,
            ring: producer,
            room: 0,
            shared: Arc::clone(&shared),
        };
        (lane, LaneReader { ring: consumer, shared })
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
        control: Control,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        backtrace: Option<Box<Backtrace>>,
    ) {
        let recorded = self.follow(control, sources)
            && control.is_recording()
            && self.write_enter(id, sources, backtrace, |callsite| {
                // The clock is read only once there is room: it is what costs most.
                let at = sources.clock.now();
                Record::Enter { at, id, callsite }
            });
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

    pub(super) fn event(
        &mut self,
        control: Control,
        callsite: Callsite,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        self.write_moment(control, fields, sources, |at| Record::Event { at, callsite });
    }

    /// Writes fields recorded on a span that was entered in this window.
    pub(super) fn update(
        &mut self,
        control: Control,
        id: RegistryId,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Resolve>,
    ) {
        self.write_moment(control, fields, sources, |at| Record::Update { at, id });
    }

    fn write_moment(
        &mut self,
        control: Control,
        fields: &mut Vec<FieldData>,
        sources: &Sources<'_, impl Resolve>,
        record: impl FnOnce(Ticks) -> Record,
    ) {
        if self.follow(control, sources) && self.has_room(1 + fields.len()) {
            self.write(record(sources.clock.now()));
            fields.drain(..).for_each(|field| self.write(Record::Field(field)));
        } else {
            self.count_drop();
        }
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
        for window in missed.max(sources.collected.load(Ordering::Relaxed))..control.window() {
            self.join(window, sources);
        }
        let joined = !control.is_recording() || self.join(control.window(), sources);
        if joined {
            self.seen = control;
        }
        joined
    }

    /// The first thing a thread writes in a window: what was open on it already.
    fn join(&mut self, window: u32, sources: &Sources<'_, impl Resolve>) -> bool {
        self.owed = 0;
        if !self.has_room(1) {
            self.count_drop();
            return false;
        }
        self.write(Record::Join { window });
        self.window = Some(window);
        let mut open = self.stack.to_vec();
        for Open { id, recorded } in &mut open {
            let id = *id;
            *recorded = self.write_enter(id, sources, None, |callsite| Record::Open { id, callsite });
        }
        self.stack.lay(&open);
        true
    }

    /// Writes that a span is open from here on, with its fields, if it fits together with its exit.
    #[inline]
    fn write_enter(
        &mut self,
        id: RegistryId,
        sources: &Sources<'_, impl Resolve>,
        backtrace: Option<Box<Backtrace>>,
        record: impl FnOnce(Callsite) -> Record,
    ) -> bool {
        let Some(callsite) = (sources.callsite)(id) else {
            self.count_drop();
            return false;
        };
        let window = self.window;
        let extra = usize::from(backtrace.is_some());
        let write = |fields: &[FieldData]| {
            let room = self.has_room(2 + fields.len() + extra);
            if room {
                self.write(record(callsite));
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

    /// Whether the thread can have been in this window.
    pub(crate) fn was_in(&self, window: u32) -> bool {
        self.shared.first_window <= window
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

#[cfg(test)]
mod tests {
    use super::{Callsite, Control, Lane, LaneReader, Record, RegistryId, Sources};
    use crate::{
        clock::Clock,
        host::{ThreadInfo, live::Live},
        trace::{FieldData, Value},
    };
    use std::sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    };

    /// A lane with what it needs from outside, where the id of a span with a field is even.
    struct Bench {
        lane: Lane,
        clock: Clock,
        live: Live,
        collected: AtomicU32,
    }

    fn bench(capacity: usize) -> (Bench, LaneReader) {
        let (lane, reader) = Lane::new(1, Control::waiting(0), ThreadInfo::of_this_thread(), capacity);
        (Bench { lane, clock: Clock::mock(), live: Live::new(64), collected: AtomicU32::new(0) }, reader)
    }

    fn callsite(id: RegistryId) -> Option<Callsite> {
        static CALLSITES: OnceLock<[Option<Callsite>; 2]> = OnceLock::new();
        let callsites = CALLSITES.get_or_init(|| {
            // Only a span that somebody wants to see knows its callsite.
            tracing::subscriber::with_default(tracing_subscriber::registry(), || {
                [tracing::error_span!("even", field = 0).metadata(), tracing::error_span!("odd").metadata()]
            })
        });
        callsites[id as usize % 2]
    }

    const FIRST: Control = Control(2);
    const WAITING: Control = Control(1);

    impl Bench {
        fn make(&self, id: RegistryId) {
            let field = FieldData { index: 0, value: Value::Str(id.to_string().into()) };
            self.live.insert(id, &mut vec![field], false);
        }

        fn enter(&mut self, control: Control, id: RegistryId) {
            if !control.is_recording() && self.lane.enter_unrecorded(control, id) {
                return;
            }
            let sources = Sources { clock: &self.clock, live: &self.live, collected: &self.collected, callsite };
            self.lane.enter(control, id, &sources, None);
        }

        fn exit(&mut self, control: Control, id: RegistryId) {
            self.lane.exit(
                control,
                id,
                &Sources { clock: &self.clock, live: &self.live, collected: &self.collected, callsite },
            );
        }
    }

    fn read_all(reader: &mut LaneReader) -> String {
        let text = |record| match record {
            Record::Join { window } => format!("join {window}"),
            Record::Open { id, .. } => format!("open {id}"),
            Record::Enter { id, .. } => format!("enter {id}"),
            Record::Exit { id, .. } => format!("exit {id}"),
            Record::Field(field) => format!("={}", field.value),
            record => format!("{record:?}"),
        };
        std::iter::from_fn(|| reader.read()).map(text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_thread_that_joins_tells_what_was_open() {
        let (mut bench, mut reader) = bench(64);
        bench.make(2);
        bench.enter(WAITING, 1);
        bench.enter(WAITING, 2);
        bench.exit(FIRST, 2);
        bench.enter(FIRST, 3);
        assert_eq!(read_all(&mut reader), "join 0 open 1 open 2 =2 exit 2 enter 3");
        bench.exit(Control::waiting(1), 3);
        bench.enter(Control::recording(1), 5);
        assert_eq!(read_all(&mut reader), "join 1 open 1 enter 5");
    }

    #[test]
    fn a_thread_that_missed_a_window_tells_what_was_open_through_it() {
        let (mut bench, mut reader) = bench(64);
        bench.enter(WAITING, 1);
        // Window 0 has come and gone.
        bench.enter(Control::waiting(1), 3);
        assert_eq!(read_all(&mut reader), "join 0 open 1");
        // So have windows 1 to 4, the collector has come to the first two of them, and window 5 is open.
        bench.collected.store(3, Ordering::Relaxed);
        bench.exit(Control::recording(5), 3);
        let open = "open 1 open 3";
        assert_eq!(read_all(&mut reader), format!("join 3 {open} join 4 {open} join 5 {open} exit 3"));
    }

    #[test]
    fn what_does_not_fit_is_dropped_whole() {
        let (mut bench, mut reader) = bench(8);
        // The join, then an enter with room for its exit each.
        (1..=10).map(|id| 2 * id + 1).for_each(|id| bench.enter(FIRST, id));
        (1..=10).rev().map(|id| 2 * id + 1).for_each(|id| bench.exit(FIRST, id));
        assert_eq!(read_all(&mut reader), "join 0 enter 3 enter 5 enter 7 exit 7 exit 5 exit 3");
        assert_eq!(reader.take_dropped(), 7);
    }

    #[test]
    fn a_reader_on_another_thread_sees_whole_spans() {
        let (mut bench, mut reader) = bench(16);
        let turns = if cfg!(miri) { 40 } else { 20_000 };
        let writer = std::thread::spawn(move || {
            for turn in 1..=turns {
                bench.make(2 * turn);
                bench.enter(FIRST, 2 * turn);
                bench.enter(FIRST, 2 * turn + 1);
                bench.exit(FIRST, 2 * turn + 1);
                bench.exit(FIRST, 2 * turn);
                bench.live.remove(2 * turn, false);
            }
        });
        let (mut open, mut seen, mut field_of) = (Vec::new(), 0, None);
        loop {
            let finished = reader.is_abandoned();
            while let Some(record) = reader.read() {
                match record {
                    Record::Enter { id, .. } => {
                        open.push(id);
                        field_of = Some(id);
                        seen += 1;
                    }
                    Record::Exit { id, .. } => assert_eq!(open.pop(), Some(id)),
                    Record::Field(field) => {
                        assert_eq!(field.value.as_str(), field_of.map(|id| id.to_string()).as_deref());
                    }
                    record => assert!(matches!(record, Record::Join { window: 0 })),
                }
            }
            if finished {
                break;
            }
            std::thread::yield_now();
        }
        writer.join().unwrap();
        assert!(open.is_empty());
        assert_eq!(seen + reader.take_dropped(), 2 * turns);
    }

    #[test]
    fn the_collector_can_look_at_what_is_open() {
        let (mut bench, reader) = bench(64);
        bench.make(2);
        bench.enter(WAITING, 2);
        bench.enter(WAITING, 3);
        let open = reader.open_spans(callsite, &bench.live);
        assert!(matches!(&open[..], [Record::Open { id: 2, .. }, Record::Field(_), Record::Open { id: 3, .. }]));
    }
}
