//! Tests of spans that cross the start or end of a window: a window has all spans that were open in it, and no others.

use crate::support::{PATIENCE, profiled, span, tree};
use kernspan::{
    Schedule,
    trace::{Losses, Value},
};
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use tracing::info_span;

#[test]
fn spans_across_the_edges_of_a_window_are_cut_there() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            let run = info_span!("run", seed = 1).entered();
            let early = info_span!("early", early = true).entered();
            profiler.start();
            info_span!("inside").in_scope(|| ());
            drop(early);
            let late = info_span!("late").entered();
            profiler.stop();
            drop((late, run));
        },
    );
    assert_eq!(tree(&traces[0]), "…run{seed=1}…\n  …early{early=true}\n    inside\n  late…\n");
    let run = span(&traces[0], "run");
    assert_eq!((run.start(), run.end()), (traces[0].start(), traces[0].end()));
}

#[test]
fn a_thread_that_writes_nothing_in_a_window_still_has_its_open_spans() {
    let (export, exported) = mpsc::channel();
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()).on_trace(move |_| export.send(()).unwrap()),
        |profiler| {
            let dispatch = tracing::dispatcher::get_default(Clone::clone);
            let (entered, is_entered) = mpsc::channel();
            let (release, is_released) = mpsc::channel::<()>();
            let loader = std::thread::Builder::new().name("loader".into()).spawn(move || {
                tracing::dispatcher::with_default(&dispatch, || {
                    let _waiting = info_span!("waiting for data", queue = "train").entered();
                    entered.send(()).unwrap();
                    let _ = is_released.recv();
                });
            });
            is_entered.recv().unwrap();
            profiler.start();
            info_span!("compute").in_scope(|| ());
            profiler.stop();
            // By then the collector has read the thread's stack.
            exported.recv_timeout(PATIENCE).unwrap();
            drop(release);
            loader.unwrap().join().unwrap();
        },
    );
    let waiting = span(&traces[0], "waiting for data");
    assert_eq!(waiting.track().thread_name(), "loader");
    assert!(waiting.cut().start && waiting.cut().end);
    assert_eq!(waiting.duration(), traces[0].duration());
    assert_eq!(waiting.field("queue").and_then(Value::as_str), Some("train"));
}

/// A counter that gives the moments of all threads one order.
#[derive(Default)]
struct Order(AtomicU64);

impl Order {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

/// The number of the span that begins before the first window and ends after the last.
const THROUGHOUT: u64 = 2000;

#[test]
fn what_happens_after_a_window_is_not_in_it() {
    const STEPS: u64 = 200;
    // The windows are far shorter than the collector's interval, and threads mostly write nothing in them.
    let (order, spans, mut steps) = (Order::default(), Mutex::new(HashMap::new()), Vec::new());
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::new().wait(1).active(1)),
        |profiler| {
            let dispatch = &tracing::dispatcher::get_default(Clone::clone);
            // Makes a span, and notes the moments before, in and after it.
            let slow = |turn: u64, work: &dyn Fn()| {
                tracing::dispatcher::with_default(dispatch, || {
                    let before = order.next();
                    let within = info_span!("slow", turn).in_scope(|| {
                        let entered = order.next();
                        work();
                        (entered, order.next())
                    });
                    spans.lock().unwrap().insert(turn, ((before, order.next()), within));
                });
            };
            // Some pauses last for several windows, some for less than one. Which ones does not matter.
            let pause = |millis| std::thread::sleep(Duration::from_millis(millis));
            let (entered, is_entered) = mpsc::channel();
            let (release, is_released) = mpsc::channel::<()>();
            std::thread::scope(|scope| {
                let slow = &slow;
                scope.spawn(move || {
                    slow(THROUGHOUT, &|| {
                        entered.send(()).unwrap();
                        let _ = is_released.recv();
                    });
                });
                is_entered.recv_timeout(PATIENCE).unwrap();
                scope.spawn(|| (1000..1100).for_each(|turn| slow(turn, &|| pause(3))));
                for step in 0..STEPS {
                    if step % 8 == 0 {
                        // A thread that begins while nothing is recorded.
                        scope.spawn(move || slow(step, &|| pause(4)));
                    }
                    // The other threads run meanwhile.
                    info_span!("step", step).in_scope(|| std::thread::sleep(Duration::from_micros(300)));
                    let before = order.next();
                    profiler.step();
                    steps.push((before, order.next()));
                }
                drop(release);
            });
        },
    );
    let Losses { late, fields, .. } = *report.losses();
    assert_eq!(report.losses().total(), late + fields);
    assert_eq!(traces.len() as u64, STEPS / 2);
    let spans = spans.into_inner().unwrap();
    for (window, trace) in (0..).zip(&traces) {
        assert_eq!(span(trace, "step").field("step").and_then(Value::as_u64), Some(2 * window + 1), "{}", tree(trace));
        let [(opening, opened), (closing, closed)] = [2 * window, 2 * window + 1].map(|step| steps[step as usize]);
        let turns = trace.spans().filter_map(|span| span.field("turn").and_then(Value::as_u64));
        let turns: HashSet<_> = turns.collect();
        for turn in &turns {
            let ((before, after), _) = spans[turn];
            assert!(before < closed && opening < after, "turn {turn} was not in window {window}:\n{}", tree(trace));
        }
        assert!(turns.contains(&THROUGHOUT), "window {window}:\n{}", tree(trace));
        for (turn, (_, (entered, left))) in &spans {
            let was_open = *entered < opening && closed < *left || opened < *entered && *left < closing;
            // A thread that is suspended while it writes may be late; then that is counted.
            let found = turns.contains(turn) || late + fields > 0;
            assert!(!was_open || found, "turn {turn} is missing from window {window}:\n{}", tree(trace));
        }
    }
}

#[test]
fn spans_made_while_the_schedule_waits_keep_their_fields() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(2).active(1).repeat(2)),
        |profiler| {
            let layers: Vec<_> = (0..100).map(|layer| info_span!("layer", layer)).collect();
            for _ in 0..8 {
                layers.iter().for_each(|layer| layer.in_scope(|| ()));
                profiler.step();
            }
        },
    );
    assert_eq!(traces.len(), 2);
    for trace in traces {
        let layers: Vec<_> = trace.spans().map(|span| span.field("layer").unwrap().as_u64().unwrap()).collect();
        assert_eq!(layers, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_falls_between_windows_that_follow_each_other() {
    const STEPS: u64 = 100;
    const SPANS_PER_STEP: u64 = 200;
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::new().active(1)),
        |profiler| {
            let dispatch = &tracing::dispatcher::get_default(Clone::clone);
            // Neither thread gets far ahead of the other.
            let (made, stepped) = (&AtomicU64::new(0), &AtomicU64::new(0));
            let wait_until = |holds: &dyn Fn() -> bool| {
                while !holds() {
                    std::thread::yield_now();
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    tracing::dispatcher::with_default(dispatch, || {
                        for turn in 0..STEPS * SPANS_PER_STEP {
                            wait_until(&|| turn / SPANS_PER_STEP <= stepped.load(Ordering::Relaxed) + 1);
                            info_span!("turn", turn).in_scope(|| ());
                            made.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                });
                for step in 1..STEPS {
                    wait_until(&|| made.load(Ordering::Relaxed) >= step * SPANS_PER_STEP);
                    profiler.step();
                    stepped.store(step, Ordering::Relaxed);
                }
            });
        },
    );
    // Empty windows are left out, but one of each two neighbours has spans.
    assert!((STEPS / 2..=STEPS).contains(&(traces.len() as u64)), "{} windows", traces.len());
    let mut seen = HashSet::new();
    for span in traces.iter().flat_map(|trace| trace.spans()) {
        // A span that crosses the end of a window is in both windows.
        let Some(turn) = span.field("turn").and_then(Value::as_u64) else { continue };
        assert!(seen.insert(turn) || span.cut().start);
    }
    // A thread may be suspended while it writes for longer than the collector waits; then that is counted.
    let Losses { late, fields, .. } = *report.losses();
    assert_eq!(report.losses().total(), late + fields);
    let (seen, made) = (seen.len() as u64, STEPS * SPANS_PER_STEP);
    assert!(seen <= made && seen + late + fields >= made, "{seen} seen, {}", report.losses());
}
