//! Windows and what lies across their edges: nothing that was in a window is missing from it, and nothing else is in it.

use crate::support::{profiled, span, tree};
use kernspan::{Losses, Schedule, Value};
use std::{sync::mpsc, time::Duration};
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
fn a_thread_that_is_silent_through_a_whole_window_is_still_inside_its_spans() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
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
            // Until the collector has had time to look.
            std::thread::sleep(Duration::from_millis(100));
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

#[test]
fn what_happens_after_a_window_is_not_in_it() {
    // Windows far shorter than the collector takes to come by, and threads that are mostly silent in them.
    let now = || u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos()).unwrap();
    let truth = std::sync::Mutex::new(std::collections::HashMap::new());
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::new().wait(1).active(1)),
        |profiler| {
            let dispatch = &tracing::dispatcher::get_default(Clone::clone);
            let slow = |turn: u64, millis: u64| {
                tracing::dispatcher::with_default(dispatch, || {
                    let before = now();
                    let inside = info_span!("slow", turn).in_scope(|| {
                        let entered = now();
                        std::thread::sleep(Duration::from_millis(millis));
                        (entered, now())
                    });
                    truth.lock().unwrap().insert(turn, ((before, now()), inside));
                });
            };
            std::thread::scope(|scope| {
                scope.spawn(|| (1000..1100).for_each(|turn| slow(turn, 3)));
                for step in 0..200_u64 {
                    if step % 8 == 0 {
                        // A thread that begins while nothing is recorded.
                        scope.spawn(move || slow(step, 4));
                    }
                    info_span!("step", step).in_scope(|| std::thread::sleep(Duration::from_micros(300)));
                    profiler.step();
                }
            });
        },
    );
    let Losses { late, fields, .. } = *report.losses();
    assert_eq!(report.losses().total(), late + fields);
    assert_eq!(traces.len(), 100);
    let (truth, mut seen) = (truth.into_inner().unwrap(), 0);
    for (window, trace) in (0..).zip(&traces) {
        let (start, end) = (trace.start().as_unix_nanos(), trace.end().as_unix_nanos());
        assert_eq!(span(trace, "step").field("step").and_then(Value::as_u64), Some(2 * window + 1), "{}", tree(trace));
        for slow in trace.spans().filter(|span| span.name() == "slow") {
            let Some(turn) = slow.field("turn").and_then(Value::as_u64) else { continue };
            let ((began, ended), _) = truth[&turn];
            assert!(began <= end && start <= ended, "turn {turn} was not in window {window}:\n{}", tree(trace));
            seen += 1;
        }
        // And what was open all the while is there.
        for (turn, (_, (began, ended))) in &truth {
            let found = || trace.spans().any(|span| span.field("turn").and_then(Value::as_u64) == Some(*turn));
            let throughout = *began < start && end < *ended;
            assert!(
                !throughout || found() || late + fields > 0,
                "turn {turn} is missing from window {window}:\n{}",
                tree(trace)
            );
        }
    }
    assert!(seen > 50, "{seen}");
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
    const SPANS: u64 = 20_000;
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::new().active(1)),
        |profiler| {
            let dispatch = &tracing::dispatcher::get_default(Clone::clone);
            std::thread::scope(|scope| {
                let worker = scope.spawn(|| {
                    tracing::dispatcher::with_default(dispatch, || {
                        (0..SPANS).for_each(|turn| info_span!("turn", turn).in_scope(|| ()));
                    });
                });
                while !worker.is_finished() {
                    std::thread::sleep(Duration::from_micros(100));
                    profiler.step();
                }
            });
        },
    );
    assert!(traces.len() > 10, "{} windows", traces.len());
    let mut seen = std::collections::BTreeSet::new();
    for span in traces.iter().flat_map(|trace| trace.spans()) {
        // One that lies across an edge is in both windows.
        let Some(turn) = span.field("turn").and_then(Value::as_u64) else { continue };
        assert!(seen.insert(turn) || span.cut().start);
    }
    // A thread may be suspended in the middle of writing for longer than the collector waits; then that is counted.
    let Losses { late, fields, .. } = *report.losses();
    assert_eq!(report.losses().total(), late + fields);
    let seen = seen.len() as u64;
    assert!(seen <= SPANS && seen + late + fields >= SPANS, "{seen} seen, {}", report.losses());
}
