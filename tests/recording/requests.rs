//! Tests of windows that are requested while the program runs.

use crate::support::profiled;
use kernspan::{
    Phase, Profiler, Schedule, Trace,
    control::{Progress, RecordRequest, Requested},
    trace::{Cut, Step},
};
use proptest::prelude::*;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::info_span;

/// Runs steps whose spans have their numbers.
fn take_steps(profiler: &Profiler, steps: u64) {
    for _ in 0..steps {
        info_span!("work", step = profiler.current_step()).in_scope(|| ());
        profiler.step();
    }
}

/// Returns the numbers of the steps of each window, and checks that it has their spans and no others.
fn steps_of(traces: &[Arc<Trace>]) -> Vec<Vec<u64>> {
    let of_trace = |trace: &Arc<Trace>| {
        // The end of the run cuts the step after the last.
        let whole = trace.steps().iter().filter(|step| step.cut() == Cut::default());
        let steps: Vec<_> = whole.map(Step::number).collect();
        let spans: Vec<_> = trace.spans().map(|span| span.field("step").unwrap().to_string()).collect();
        assert_eq!(spans, steps.iter().map(u64::to_string).collect::<Vec<_>>());
        steps
    };
    traces.iter().map(of_trace).collect()
}

fn failure(requested: &Requested) -> String {
    match requested.progress() {
        Progress::Failed(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_next_steps_are_recorded() {
    let mut requested = None;
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            take_steps(profiler, 3);
            requested = Some(profiler.record_next(2));
            assert_eq!(requested.as_ref().unwrap().progress(), Progress::Waiting);
            assert_eq!(profiler.phase(), Phase::Wait);
            take_steps(profiler, 1);
            assert_eq!(requested.as_ref().unwrap().progress(), Progress::Recording);
            assert_eq!(profiler.phase(), Phase::Record);
            take_steps(profiler, 1);
            assert_eq!(profiler.phase(), Phase::RecordAndSave);
            take_steps(profiler, 3);
            assert_eq!(profiler.phase(), Phase::Wait);
        },
    );
    assert_eq!(steps_of(&traces), [[4, 5]]);
    let recorded = requested.unwrap().wait().unwrap();
    assert_eq!((recorded.first_step, recorded.steps, recorded.spans), (Some(4), 2, 2));
}

#[test]
fn a_request_splits_the_window_of_the_schedule() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(1).active(6).repeat(1)),
        |profiler| {
            take_steps(profiler, 3);
            profiler.record_next(2);
            take_steps(profiler, 6);
        },
    );
    assert_eq!(steps_of(&traces), [vec![1, 2, 3], vec![4, 5], vec![6]]);
}

#[test]
fn requests_wait_while_the_program_keeps_a_window_open() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            profiler.step();
            profiler.start();
            let requested = profiler.record_next(1);
            profiler.step();
            assert_eq!(requested.progress(), Progress::Waiting);
            profiler.stop();
            profiler.step();
            assert_eq!(requested.progress(), Progress::Recording);
            profiler.step();
        },
    );
    assert_eq!(traces.len(), 2);
}

#[test]
fn two_ranks_record_the_same_steps_without_communicating() {
    let rank = |ahead| {
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::manual()),
            |profiler| {
                take_steps(profiler, ahead);
                profiler.control().record(RecordRequest::steps(3).at_step(10));
                take_steps(profiler, 20 - ahead);
            },
        );
        steps_of(&traces)
    };
    assert_eq!(rank(2), [[10, 11, 12]]);
    assert_eq!(rank(7), [[10, 11, 12]]);
}

#[test]
fn a_slow_step_begins_a_window() {
    let mut first_slow = None;
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            let slow = RecordRequest::steps(1).when("step_time > 200 ms".parse().unwrap());
            profiler.control().record(slow);
            // The first end of a step is only the beginning of the next.
            profiler.step();
            while first_slow.is_none() {
                let start = Instant::now();
                if profiler.current_step() == 8 {
                    std::thread::sleep(Duration::from_millis(250));
                }
                take_steps(profiler, 1);
                // On a busy machine, an earlier one may take as long.
                first_slow = (start.elapsed() > Duration::from_millis(200)).then(|| profiler.current_step() - 1);
            }
            take_steps(profiler, 4);
        },
    );
    assert_eq!(steps_of(&traces), [[first_slow.unwrap() + 1]]);
}

#[test]
fn a_duration_ends_with_a_step() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            profiler.step();
            let requested = profiler.control().record(RecordRequest::duration(Duration::from_millis(20)));
            profiler.step();
            std::thread::sleep(Duration::from_millis(25));
            assert_eq!(requested.progress(), Progress::Recording);
            take_steps(profiler, 2);
            assert!(matches!(requested.progress(), Progress::Writing | Progress::Done(_)));
        },
    );
    assert_eq!(steps_of(&traces), [[2]]);
}

#[test]
fn a_program_without_steps_is_recorded_for_a_time() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            let requested = profiler.control().record(RecordRequest::duration(Duration::from_millis(200)));
            while !requested.progress().is_over() {
                info_span!("serve").in_scope(|| std::thread::sleep(Duration::from_millis(1)));
            }
            assert!(requested.wait().unwrap().spans > 0);
        },
    );
    assert_eq!(traces.len(), 1);
}

#[test]
fn what_cannot_be_recorded_is_refused() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            take_steps(profiler, 5);
            let control = profiler.control();
            assert_eq!(failure(&profiler.record_next(0)), "a window of 0 steps was requested: ask for 1 or more");
            let late = control.record(RecordRequest::steps(1).at_step(5));
            assert_eq!(failure(&late), "step 5 has begun: the run is in step 5");
            let never = control.record(RecordRequest::steps(1).at_step(u64::MAX));
            let cancelled = profiler.record_next(1);
            cancelled.cancel();
            take_steps(profiler, 2);
            assert_eq!(failure(&cancelled), "nothing was recorded");
            let many: Vec<_> = (0..300).map(|_| profiler.record_next(1)).collect();
            assert_eq!(failure(many.last().unwrap()), "256 requests are waiting already");
            many.iter().for_each(Requested::cancel);
            assert_eq!(never.progress(), Progress::Waiting);
        },
    );
    assert!(traces.is_empty());
}

#[test]
fn the_end_of_the_run_answers_every_request() {
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).build().unwrap();
    let control = profiler.control();
    let mut requests = Vec::new();
    tracing::subscriber::with_default(
        tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer),
        || {
            requests.extend([profiler.record_next(5), profiler.record_next(5)]);
            take_steps(&profiler, 3);
        },
    );
    profiler.finish().unwrap();
    assert_eq!(requests[0].wait().unwrap().steps, 2);
    assert_eq!(failure(&requests[1]), "the run ended before the window could begin");
    assert_eq!(failure(&control.record(RecordRequest::steps(1))), "the run has ended");
    assert!(control.status().ended);
}

#[test]
fn a_request_has_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut requested = None;
    let (traces, report) = profiled(
        |builder| builder.schedule(Schedule::manual()),
        |profiler| {
            requested = Some(profiler.control().record(RecordRequest::steps(1).into_dir(folder.path().join("new"))));
            take_steps(profiler, 3);
        },
    );
    assert!(traces.is_empty(), "the exporters get no window that has its own folder");
    let recorded = requested.unwrap().wait().unwrap();
    let mut endings: Vec<_> = recorded.files.iter().map(|file| file.extension().unwrap().to_str().unwrap()).collect();
    endings.sort_unstable();
    assert_eq!(endings, ["html", "json", "pftrace"]);
    assert!(recorded.files.iter().all(|file| file.exists()));
    assert_eq!(report.files().len(), 3);
}

#[test]
fn a_new_schedule_counts_from_the_next_step() {
    let (traces, _) = profiled(
        |builder| builder.schedule(Schedule::new().wait(100).active(1)),
        |profiler| {
            take_steps(profiler, 4);
            profiler.control().set_schedule(Schedule::new().wait(1).active(2).repeat(1)).unwrap();
            take_steps(profiler, 9);
            assert!(profiler.control().set_schedule(Schedule::new().active(0)).is_err());
        },
    );
    assert_eq!(steps_of(&traces), [[6, 7]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is requested at whatever time: each request has its own window of whole, adjacent steps, every step is
    /// in one window at most, and the steps of the schedule that no request took are recorded, too.
    #[test]
    fn requests_and_schedules_never_lose_a_step(
        (wait, active) in (0_u64..4, 1_u64..4),
        actions in proptest::collection::vec((0_u64..5, 1_u64..4, proptest::option::of(0_u64..6)), 0..6),
    ) {
        let mut requests = Vec::new();
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::new().wait(wait).active(active)),
            |profiler| {
                for (steps, length, later) in &actions {
                    take_steps(profiler, *steps);
                    let request = RecordRequest::steps(*length);
                    let first = later.map(|later| profiler.current_step() + 1 + later);
                    let request = first.map_or(request.clone(), |first| request.at_step(first));
                    requests.push((profiler.control().record(request), *length, first));
                }
                take_steps(profiler, 40);
            },
        );
        let windows = steps_of(&traces);
        let recorded: Vec<u64> = windows.iter().flatten().copied().collect();
        prop_assert!(recorded.is_sorted_by(|a, b| a < b), "{recorded:?}");
        let mut schedule = Schedule::new().wait(wait).active(active);
        for step in 0..=*recorded.last().unwrap() {
            prop_assert!(!schedule.phase(step).is_recording() || recorded.contains(&step), "{step} {windows:?}");
        }
        for (requested, length, first) in requests {
            let window = requested.wait().unwrap();
            prop_assert_eq!(window.steps, length);
            prop_assert!(first.is_none_or(|first| window.first_step.unwrap() >= first));
            let steps: Vec<_> = (0..length).map(|step| window.first_step.unwrap() + step).collect();
            prop_assert!(windows.contains(&steps), "{steps:?} {windows:?}");
        }
    }
}
