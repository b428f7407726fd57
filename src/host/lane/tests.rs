//! Tests of a lane: the records that a thread writes, and those that do not fit.

use super::{Callsite, Control, Found, Lane, LaneReader, Record, RegistryId, Sources};
use crate::{
    clock::{Clock, Ticks},
    host::live::Live,
    recording::Origin,
    thread::ThreadInfo,
    trace::{FieldData, Operation, ThreadId, Value},
};
use std::{
    num::NonZeroU64,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

/// A lane and the environment that it needs. Spans with even ids have a field. Spans from
/// 100,000 on were made inside of span 7.
struct TestLane {
    lane: Lane,
    environment: Environment,
}

struct Environment {
    clock: Clock,
    live: Live,
    collected: AtomicU32,
    control: AtomicU64,
}

fn test_lane(capacity: usize) -> (TestLane, LaneReader) {
    let (lane, reader) = Lane::new(1, Control::waiting(0), ThreadInfo::of_this_thread(), Lane::ring(capacity));
    let (collected, control) = (AtomicU32::new(0), AtomicU64::new(0));
    (
        TestLane { lane, environment: Environment { clock: Clock::mock(), live: Live::new(64), collected, control } },
        reader,
    )
}

impl Environment {
    fn sources(&self) -> Sources<'_, fn(RegistryId) -> Option<Found>> {
        let Self { clock, live, collected, control } = self;
        Sources { clock, live, collected, control, find }
    }
}

fn find(id: RegistryId) -> Option<Found> {
    Some(Found { callsite: callsite(id)?, made_in: NonZeroU64::new(7).filter(|_| id >= 100_000) })
}

fn callsite(id: RegistryId) -> Option<Callsite> {
    static CALLSITES: OnceLock<[Option<Callsite>; 2]> = OnceLock::new();
    let callsites = CALLSITES.get_or_init(|| {
        // Only an enabled span has a callsite.
        tracing::subscriber::with_default(tracing_subscriber::registry(), || {
            [tracing::error_span!("even", field = 0).metadata(), tracing::error_span!("odd").metadata()]
        })
    });
    callsites[id as usize % 2]
}

const FIRST: Control = Control::from_u64(2);
const WAITING: Control = Control::from_u64(1);

impl TestLane {
    fn add_fields(&self, id: RegistryId) {
        let field = FieldData { index: 0, value: Value::Str(id.to_string().into()) };
        self.environment.live.insert(id, &mut vec![field], false);
    }

    fn give_parent(&self, id: RegistryId, parent: RegistryId) {
        self.environment.live.insert(id, &mut Vec::new(), false);
        self.environment.live.set_parent(id, NonZeroU64::new(parent).unwrap());
    }

    fn enter(&mut self, control: Control, id: RegistryId) {
        self.environment.control.store(control.as_u64(), Ordering::Relaxed);
        if control.is_recording() || !self.lane.enter_unrecorded(control, id) {
            self.lane.enter(control, id, &self.environment.sources(), None, None);
        }
    }

    /// Writes an operation, where `control` is the latest control word that the thread has read.
    fn operation(&mut self, control: Control, name: &str) {
        let operation = Arc::new(Operation::new(name));
        self.lane.write_reported(control, |at| Record::Operation { at, operation }, &self.environment.sources());
    }

    fn exit(&mut self, control: Control, id: RegistryId) {
        self.lane.exit(control, id, &self.environment.sources());
    }
}

fn read_all(reader: &mut LaneReader) -> String {
    let text = |record| match record {
        Record::Join { window } => format!("join {window}"),
        Record::Joined => "joined".to_owned(),
        Record::Open { id, .. } => format!("open {id}"),
        Record::Enter { id, .. } | Record::EnterKept { id, .. } => format!("enter {id}"),
        Record::Exit { id, .. } => format!("exit {id}"),
        Record::Parent { id } => format!("of {id}"),
        Record::Field(field) => format!("={}", field.value),
        Record::Operation { operation, .. } => operation.name().to_owned(),
        Record::Adopt(origin) => format!("adopt {}", origin.map_or(0, Origin::batch)),
        Record::Fields(fields) => fields.iter().map(|field| format!("=={}", field.value)).collect(),
        record => format!("{record:?}"),
    };
    std::iter::from_fn(|| reader.read()).map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_thread_that_joins_writes_its_open_spans() {
    let (mut test, mut reader) = test_lane(64);
    test.add_fields(2);
    test.enter(WAITING, 1);
    test.enter(WAITING, 2);
    test.exit(FIRST, 2);
    test.enter(FIRST, 3);
    assert_eq!(read_all(&mut reader), "join 0 open 1 open 2 =2 joined exit 2 enter 3");
    test.exit(Control::waiting(1), 3);
    test.enter(Control::recording(1), 5);
    assert_eq!(read_all(&mut reader), "join 1 open 1 joined enter 5");
}

#[test]
fn a_full_lane_still_has_room_for_outer_spans() {
    let (mut test, mut reader) = test_lane(64);
    [1, 3].into_iter().for_each(|id| test.enter(FIRST, id));
    // Nobody reads the lane meanwhile.
    for _ in 0..100 {
        test.enter(FIRST, 5);
        test.exit(FIRST, 5);
    }
    [3, 1].into_iter().for_each(|id| test.exit(FIRST, id));
    test.enter(FIRST, 7);
    test.exit(FIRST, 7);
    let written = read_all(&mut reader);
    assert!(written.ends_with("exit 5 exit 3 exit 1 enter 7 exit 7"), "{written}");
    assert!(written.matches("enter 5").count() < 100, "{written}");
}

#[test]
fn a_parent_is_written_where_the_stack_does_not_say_it() {
    let (mut test, mut reader) = test_lane(64);
    test.enter(FIRST, 100_001);
    test.enter(FIRST, 100_003);
    test.exit(FIRST, 100_003);
    test.exit(FIRST, 100_001);
    assert_eq!(read_all(&mut reader), "join 0 joined enter 100001 of 7 enter 100003 exit 100003 exit 100001");
    // Parents that were given count wherever the span is entered, and before those of the place where it was made.
    test.give_parent(100_005, 9);
    test.give_parent(3, 8);
    [100_005, 3].into_iter().for_each(|id| test.enter(FIRST, id));
    assert_eq!(read_all(&mut reader), "enter 100005 of 9 enter 3 of 8");
    // Both are written again for the next window.
    test.enter(Control::recording(1), 1);
    assert_eq!(read_all(&mut reader), "join 1 open 100005 of 9 open 3 of 8 joined enter 1");
    let open = reader.open_spans(find, &test.environment.live);
    let parents = open.iter().filter(|record| matches!(record, Record::Parent { .. })).count();
    assert_eq!((open.len(), parents), (5, 2));
}

#[test]
fn a_span_that_is_entered_again_writes_its_fields_as_one_record() {
    let (mut test, mut reader) = test_lane(64);
    test.add_fields(2);
    for _ in 0..3 {
        test.enter(FIRST, 2);
        test.exit(FIRST, 2);
    }
    assert_eq!(read_all(&mut reader), "join 0 joined enter 2 =2 exit 2 enter 2 ==2 exit 2 enter 2 ==2 exit 2");
}

#[test]
fn a_thread_that_missed_a_window_writes_the_spans_open_through_it() {
    let (mut test, mut reader) = test_lane(64);
    test.enter(WAITING, 1);
    // Window 0 has come and gone.
    test.enter(Control::waiting(1), 3);
    assert_eq!(read_all(&mut reader), "join 0 open 1 joined");
    // Windows 1 to 4 have come and gone, too. The collector has handed on the first two of them, and window 5 is open.
    test.environment.collected.store(3, Ordering::Relaxed);
    test.exit(Control::recording(5), 3);
    let open = "open 1 open 3";
    assert_eq!(read_all(&mut reader), format!("join 3 {open} join 4 {open} join 5 {open} joined exit 3"));
}

#[test]
fn a_span_entered_while_the_next_window_begins_belongs_there() {
    let (mut test, mut reader) = test_lane(64);
    test.enter(FIRST, 1);
    // The thread still thinks it is in the first window.
    test.environment.control.store(Control::recording(1).as_u64(), Ordering::Relaxed);
    test.lane.enter(FIRST, 3, &test.environment.sources(), None, None);
    assert_eq!(read_all(&mut reader), "join 0 joined enter 1 join 1 open 1 joined enter 3");
}

#[test]
fn an_operation_reported_while_the_next_window_begins_belongs_there() {
    let (mut test, mut reader) = test_lane(64);
    test.enter(FIRST, 1);
    test.operation(FIRST, "add");
    test.environment.control.store(Control::recording(1).as_u64(), Ordering::Relaxed);
    test.operation(FIRST, "mul");
    // This window has closed: the clock says whether that was before the operation.
    test.environment.control.store(Control::waiting(2).as_u64(), Ordering::Relaxed);
    test.operation(Control::recording(1), "div");
    test.operation(Control::waiting(2), "never");
    assert_eq!(read_all(&mut reader), "join 0 joined enter 1 add join 1 open 1 joined mul div");
    assert_eq!(reader.take_dropped(), 0);
}

#[test]
fn operations_that_do_not_fit_are_counted_and_leave_room_for_exits() {
    let (mut test, mut reader) = test_lane(8);
    test.enter(FIRST, 1);
    let origin = Origin::new(Ticks(1), ThreadId::new(1));
    (0..10).for_each(|_| test.operation(FIRST, "add"));
    // There is room for one origin. The second is written before the next operation.
    test.lane.adopt(FIRST, Some(origin.in_batch(3)), &test.environment.sources());
    test.lane.adopt(FIRST, Some(origin.in_batch(4)), &test.environment.sources());
    test.exit(FIRST, 1);
    assert_eq!(read_all(&mut reader), "join 0 joined enter 1 add add add adopt 3 exit 1");
    assert_eq!(reader.take_dropped(), 7);
    test.operation(FIRST, "mul");
    assert_eq!(read_all(&mut reader), "adopt 4 mul");
}

#[test]
fn spans_that_do_not_fit_are_dropped_as_a_whole() {
    let (mut test, mut reader) = test_lane(8);
    // The join, then an enter with room for its exit each.
    (1..=10).map(|id| 2 * id + 1).for_each(|id| test.enter(FIRST, id));
    (1..=10).rev().map(|id| 2 * id + 1).for_each(|id| test.exit(FIRST, id));
    assert_eq!(read_all(&mut reader), "join 0 joined enter 3 enter 5 enter 7 exit 7 exit 5 exit 3");
    assert_eq!(reader.take_dropped(), 7);
}

#[test]
fn the_ring_of_a_thread_that_has_ended_is_used_again() {
    let (mut test, mut reader) = test_lane(8);
    test.enter(FIRST, 1);
    test.exit(FIRST, 1);
    assert!(!reader.has_ended());
    drop(test);
    assert!(reader.has_ended() && !reader.is_done(), "its records have still to be read");
    assert_eq!(read_all(&mut reader), "join 0 joined enter 1 exit 1");
    assert!(reader.is_done());
    let ring = reader.into_ring().unwrap();
    let (mut test, _) = test_lane(8);
    let (lane, mut reader) = Lane::new(1, Control::waiting(0), ThreadInfo::of_this_thread(), ring);
    test.lane = lane;
    test.enter(FIRST, 3);
    test.exit(FIRST, 3);
    assert_eq!(read_all(&mut reader), "join 0 joined enter 3 exit 3");
    assert!(!reader.has_ended() && !test.lane.is_abandoned());
}

#[test]
fn a_reader_on_another_thread_sees_whole_spans() {
    let (mut test, mut reader) = test_lane(16);
    let turns = if cfg!(miri) { 40 } else { 20_000 };
    let writer = std::thread::spawn(move || {
        for turn in 1..=turns {
            test.add_fields(2 * turn);
            test.enter(FIRST, 2 * turn);
            test.enter(FIRST, 2 * turn + 1);
            test.exit(FIRST, 2 * turn + 1);
            test.exit(FIRST, 2 * turn);
            test.environment.live.remove(2 * turn, false);
        }
    });
    let (mut open, mut seen, mut field_of) = (Vec::new(), 0, None);
    loop {
        let finished = reader.has_ended();
        while let Some(record) = reader.read() {
            match record {
                Record::Enter { id, .. } | Record::EnterKept { id, .. } => {
                    open.push(id);
                    field_of = Some(id);
                    seen += 1;
                }
                Record::Exit { id, .. } => assert_eq!(open.pop(), Some(id)),
                Record::Field(field) => {
                    assert_eq!(field.value.as_str(), field_of.map(|id| id.to_string()).as_deref());
                }
                record => assert!(matches!(record, Record::Join { window: 0 } | Record::Joined)),
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
fn the_collector_can_read_the_open_spans() {
    let (mut test, reader) = test_lane(64);
    test.add_fields(2);
    test.enter(WAITING, 2);
    test.enter(WAITING, 3);
    let open = reader.open_spans(find, &test.environment.live);
    assert!(matches!(&open[..], [Record::Open { id: 2, .. }, Record::Field(_), Record::Open { id: 3, .. }]));
}
