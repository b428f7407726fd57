use super::{Callsite, Control, Lane, LaneReader, Record, RegistryId, Sources};
use crate::{
    clock::{Clock, Ticks},
    host::live::Live,
    recording::Origin,
    thread::ThreadInfo,
    trace::{FieldData, Operation, ThreadId, Value},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

/// A lane with what it needs from outside, where the id of a span with a field is even.
struct Bench {
    lane: Lane,
    world: World,
}

struct World {
    clock: Clock,
    live: Live,
    collected: AtomicU32,
    control: AtomicU64,
}

fn bench(capacity: usize) -> (Bench, LaneReader) {
    let (lane, reader) = Lane::new(1, Control::waiting(0), ThreadInfo::of_this_thread(), capacity);
    let (collected, control) = (AtomicU32::new(0), AtomicU64::new(0));
    (Bench { lane, world: World { clock: Clock::mock(), live: Live::new(64), collected, control } }, reader)
}

impl World {
    fn sources(&self) -> Sources<'_, fn(RegistryId) -> Option<Callsite>> {
        let Self { clock, live, collected, control } = self;
        Sources { clock, live, collected, control, callsite }
    }
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

const FIRST: Control = Control::from_u64(2);
const WAITING: Control = Control::from_u64(1);

impl Bench {
    fn make(&self, id: RegistryId) {
        let field = FieldData { index: 0, value: Value::Str(id.to_string().into()) };
        self.world.live.insert(id, &mut vec![field], false);
    }

    fn enter(&mut self, control: Control, id: RegistryId) {
        self.world.control.store(control.as_u64(), Ordering::Relaxed);
        if control.is_recording() || !self.lane.enter_unrecorded(control, id) {
            self.lane.enter(control, id, &self.world.sources(), None, None);
        }
    }

    /// The thread thinks that `control` is the latest.
    fn tell(&mut self, control: Control, name: &str) {
        self.lane.write_operation(control, &Arc::new(Operation::new(name)), &self.world.sources());
    }

    fn exit(&mut self, control: Control, id: RegistryId) {
        self.lane.exit(control, id, &self.world.sources());
    }
}

fn read_all(reader: &mut LaneReader) -> String {
    let text = |record| match record {
        Record::Join { window } => format!("join {window}"),
        Record::Told => "told".to_owned(),
        Record::Open { id, .. } => format!("open {id}"),
        Record::Enter { id, .. } => format!("enter {id}"),
        Record::Exit { id, .. } => format!("exit {id}"),
        Record::Field(field) => format!("={}", field.value),
        Record::Operation { operation, .. } => operation.name().to_owned(),
        Record::Adopt(origin) => format!("adopt {}", origin.map_or(0, Origin::batch)),
        Record::Fields(fields) => fields.iter().map(|field| format!("=={}", field.value)).collect(),
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
    assert_eq!(read_all(&mut reader), "join 0 open 1 open 2 =2 told exit 2 enter 3");
    bench.exit(Control::waiting(1), 3);
    bench.enter(Control::recording(1), 5);
    assert_eq!(read_all(&mut reader), "join 1 open 1 told enter 5");
}

#[test]
fn a_span_that_is_entered_again_tells_all_its_fields_at_once() {
    let (mut bench, mut reader) = bench(64);
    bench.make(2);
    for _ in 0..3 {
        bench.enter(FIRST, 2);
        bench.exit(FIRST, 2);
    }
    assert_eq!(read_all(&mut reader), "join 0 told enter 2 =2 exit 2 enter 2 ==2 exit 2 enter 2 ==2 exit 2");
}

#[test]
fn a_thread_that_missed_a_window_tells_what_was_open_through_it() {
    let (mut bench, mut reader) = bench(64);
    bench.enter(WAITING, 1);
    // Window 0 has come and gone.
    bench.enter(Control::waiting(1), 3);
    assert_eq!(read_all(&mut reader), "join 0 open 1 told");
    // So have windows 1 to 4, the collector has come to the first two of them, and window 5 is open.
    bench.world.collected.store(3, Ordering::Relaxed);
    bench.exit(Control::recording(5), 3);
    let open = "open 1 open 3";
    assert_eq!(read_all(&mut reader), format!("join 3 {open} join 4 {open} join 5 {open} told exit 3"));
}

#[test]
fn a_span_entered_while_the_next_window_begins_belongs_there() {
    let (mut bench, mut reader) = bench(64);
    bench.enter(FIRST, 1);
    // The thread still thinks it is in the first window.
    bench.world.control.store(Control::recording(1).as_u64(), Ordering::Relaxed);
    bench.lane.enter(FIRST, 3, &bench.world.sources(), None, None);
    assert_eq!(read_all(&mut reader), "join 0 told enter 1 join 1 open 1 told enter 3");
}

#[test]
fn an_operation_told_of_while_the_next_window_begins_belongs_there() {
    let (mut bench, mut reader) = bench(64);
    bench.enter(FIRST, 1);
    bench.tell(FIRST, "add");
    bench.world.control.store(Control::recording(1).as_u64(), Ordering::Relaxed);
    bench.tell(FIRST, "mul");
    // This one is over: the clock says whether it was before that.
    bench.world.control.store(Control::waiting(2).as_u64(), Ordering::Relaxed);
    bench.tell(Control::recording(1), "div");
    bench.tell(Control::waiting(2), "never");
    assert_eq!(read_all(&mut reader), "join 0 told enter 1 add join 1 open 1 told mul div");
    assert_eq!(reader.take_dropped(), 0);
}

#[test]
fn operations_that_do_not_fit_are_counted_and_take_nobodys_place() {
    let (mut bench, mut reader) = bench(8);
    bench.enter(FIRST, 1);
    let origin = Origin::new(Ticks(1), ThreadId::new(1));
    (0..10).for_each(|_| bench.tell(FIRST, "add"));
    // There is room to say so once, and then no more: so it is said before the next.
    bench.lane.adopt(FIRST, Some(origin.in_batch(3)), &bench.world.sources());
    bench.lane.adopt(FIRST, Some(origin.in_batch(4)), &bench.world.sources());
    bench.exit(FIRST, 1);
    assert_eq!(read_all(&mut reader), "join 0 told enter 1 add add add adopt 3 exit 1");
    assert_eq!(reader.take_dropped(), 7);
    bench.tell(FIRST, "mul");
    assert_eq!(read_all(&mut reader), "adopt 4 mul");
}

#[test]
fn what_does_not_fit_is_dropped_whole() {
    let (mut bench, mut reader) = bench(8);
    // The join, then an enter with room for its exit each.
    (1..=10).map(|id| 2 * id + 1).for_each(|id| bench.enter(FIRST, id));
    (1..=10).rev().map(|id| 2 * id + 1).for_each(|id| bench.exit(FIRST, id));
    assert_eq!(read_all(&mut reader), "join 0 told enter 3 enter 5 enter 7 exit 7 exit 5 exit 3");
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
            bench.world.live.remove(2 * turn, false);
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
                record => assert!(matches!(record, Record::Join { window: 0 } | Record::Told)),
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
    let open = reader.open_spans(callsite, &bench.world.live);
    assert!(matches!(&open[..], [Record::Open { id: 2, .. }, Record::Field(_), Record::Open { id: 3, .. }]));
}
