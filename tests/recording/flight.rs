//! Tests of the flight recorder, each in its own process: a panic of any other test would write what is kept.

use crate::support::{child, profiled};
use kernspan::{
    FlightRecorder, Profiler, Schedule, Trace,
    control::{Progress, RecordRequest},
    trace::{Cut, Step},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tracing::info_span;

fn alone(name: &str, test: impl FnOnce()) {
    child::alone(&format!("flight::{name}"), test);
}

fn take_steps(profiler: &Profiler, steps: u64) {
    for _ in 0..steps {
        info_span!("work", step = profiler.current_step()).in_scope(|| ());
        profiler.step();
    }
}

/// Returns the numbers of the whole steps of each window.
fn steps_of(traces: &[Arc<Trace>]) -> Vec<Vec<u64>> {
    let whole = |trace: &Arc<Trace>| {
        let whole = trace.steps().iter().filter(|step| step.cut() == Cut::default());
        whole.map(Step::number).collect()
    };
    traces.iter().map(whole).collect()
}

#[test]
fn a_run_that_ends_well_writes_nothing() {
    alone("a_run_that_ends_well_writes_nothing", || {
        let (traces, report) = profiled(
            |builder| builder.schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(3)),
            |profiler| {
                take_steps(profiler, 20);
                assert!(!profiler.is_recording());
                assert!(!profiler.stop(), "the flight recorder's windows cannot be closed by hand");
            },
        );
        assert!(traces.is_empty());
        assert_eq!(report.spans(), 0);
    });
}

#[test]
fn the_last_steps_are_written_on_request() {
    alone("the_last_steps_are_written_on_request", || {
        for steps in 1..12 {
            let mut requested = None;
            let (traces, _) = profiled(
                |builder| builder.schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(3)),
                |profiler| {
                    take_steps(profiler, steps);
                    requested = Some(profiler.control().write_recent(None));
                    take_steps(profiler, 20);
                },
            );
            let recorded: Vec<u64> = steps_of(&traces).concat();
            let kept = recorded.len() as u64;
            assert!(kept >= steps.min(3) && kept < 6, "{recorded:?}");
            assert_eq!(recorded, (steps - kept..steps).collect::<Vec<_>>(), "the last ones, without gaps");
            assert_eq!(requested.unwrap().wait().unwrap().spans, kept);
        }
    });
}

#[test]
fn a_slow_step_is_written_with_those_before_it() {
    alone("a_slow_step_is_written_with_those_before_it", || {
        let slow = FlightRecorder::steps(4).on_slow_step("step_time > 200ms".parse().unwrap());
        let mut last_slow = None;
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::manual()).flight_recorder(slow),
            |profiler| {
                take_steps(profiler, 10);
                // On a busy machine, others may take as long as the one that sleeps.
                for step in 10..20 {
                    let start = Instant::now();
                    if step == 10 {
                        std::thread::sleep(Duration::from_millis(250));
                    }
                    take_steps(profiler, 1);
                    last_slow = (start.elapsed() > Duration::from_millis(200)).then_some(step).or(last_slow);
                }
            },
        );
        let recorded = steps_of(&traces).concat();
        assert_eq!(recorded.last(), last_slow.as_ref());
        assert!(recorded.len() >= 4 && recorded.is_sorted());
    });
}

#[test]
fn a_request_for_a_slow_step_gets_that_step() {
    alone("a_request_for_a_slow_step_gets_that_step", || {
        let (mut first_slow, mut requested) = (None, None);
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(4)),
            |profiler| {
                take_steps(profiler, 6);
                let slow = RecordRequest::steps(2).when("step_time > 200ms".parse().unwrap());
                requested = Some(profiler.control().record(slow));
                // The first end of a step is only the beginning of the next.
                profiler.step();
                while first_slow.is_none() {
                    let start = Instant::now();
                    if profiler.current_step() == 10 {
                        std::thread::sleep(Duration::from_millis(250));
                    }
                    take_steps(profiler, 1);
                    // On a busy machine, an earlier one may take as long.
                    first_slow = (start.elapsed() > Duration::from_millis(200)).then(|| profiler.current_step() - 1);
                }
                take_steps(profiler, 20);
            },
        );
        let recorded = steps_of(&traces).concat();
        assert_eq!(recorded.last(), first_slow.as_ref(), "none after the slow one: {recorded:?}");
        assert!(recorded.len() >= 4 && recorded.is_sorted(), "{recorded:?}");
        let window = requested.unwrap().wait().unwrap();
        assert_eq!(window.steps, recorded.len() as u64);
    });
}

#[test]
fn windows_of_the_schedule_and_of_requests_come_first() {
    alone("windows_of_the_schedule_and_of_requests_come_first", || {
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::steps(5..8)).flight_recorder(FlightRecorder::steps(100)),
            |profiler| {
                take_steps(profiler, 10);
                profiler.record_next(2);
                take_steps(profiler, 10);
                profiler.start();
                assert_eq!(
                    profiler.control().write_recent(None).progress(),
                    Progress::Failed("the flight recorder is paused while another window is open".to_owned())
                );
                take_steps(profiler, 1);
                profiler.stop();
                assert_eq!(
                    profiler.control().write_recent(None).progress(),
                    Progress::Failed("the flight recorder is not running: it resumes with the next step".to_owned())
                );
            },
        );
        assert_eq!(steps_of(&traces), [vec![5, 6, 7], vec![11, 12], vec![]]);
    });
}

#[test]
fn a_panic_on_any_thread_writes_what_is_kept() {
    alone("a_panic_on_any_thread_writes_what_is_kept", || {
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(5)),
            |profiler| {
                take_steps(profiler, 7);
                std::thread::spawn(|| panic!("on purpose")).join().unwrap_err();
                // Another thread writes, and the steps go on meanwhile.
                while profiler.control().status().windows == 0 {
                    take_steps(profiler, 1);
                }
            },
        );
        assert!(!traces.is_empty());
    });
}

#[test]
fn a_profiler_that_a_panic_drops_writes_what_is_kept() {
    alone("a_profiler_that_a_panic_drops_writes_what_is_kept", || {
        let folder = tempfile::tempdir().unwrap();
        let panicked = std::panic::catch_unwind(|| {
            let builder = Profiler::builder().schedule(Schedule::manual()).flight_recorder(FlightRecorder::steps(5));
            let (layer, profiler) = builder.export(kernspan::Perfetto::to_dir(folder.path())).build().unwrap();
            let subscriber = tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
            tracing::subscriber::with_default(subscriber, || take_steps(&profiler, 3));
            panic!("on purpose");
        });
        panicked.unwrap_err();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    });
}

#[test]
fn memory_stays_bounded_however_long_a_window_is_to_be() {
    alone("memory_stays_bounded_however_long_a_window_is_to_be", || {
        let limit = 4 << 20;
        let (traces, _) = profiled(
            |builder| {
                let flight = FlightRecorder::duration(Duration::from_secs(3600));
                builder
                    .schedule(Schedule::new().wait(2_000).active(1))
                    .flight_recorder(flight)
                    .memory_limit_bytes(limit)
            },
            |profiler| {
                for _ in 0..2_000 {
                    take_spans(100);
                    profiler.step();
                }
                take_spans(100);
                profiler.step();
            },
        );
        // 200,000 spans of 200 bytes are ten times the limit, and yet the schedule's window has all of its own.
        assert_eq!(traces.len(), 1);
        assert_eq!(traces[0].spans().len(), 100);
    });
}

fn take_spans(spans: u64) {
    (0..spans).for_each(|_| info_span!("work").in_scope(|| ()));
}

#[test]
fn settings_are_checked() {
    alone("settings_are_checked", || {
        let built = Profiler::builder().flight_recorder(FlightRecorder::steps(0)).build();
        assert_eq!(
            built.err().unwrap().to_string(),
            "invalid setting flight_recorder: 0 steps are to be kept: use 1 or more"
        );
        let (traces, _) = profiled(
            |builder| builder.schedule(Schedule::manual()),
            |profiler| {
                let Progress::Failed(reason) = profiler.control().write_recent(None).progress() else { panic!() };
                assert!(reason.contains("flight_recorder"), "{reason}");
                let _ = profiler.control().record(RecordRequest::steps(1));
            },
        );
        assert!(traces.is_empty());
    });
}

#[cfg(all(feature = "signals", unix))]
#[test]
fn a_signal_that_ends_the_process_writes_what_is_kept() {
    const FOLDER: &str = "KERNSPAN_TEST_FOLDER";
    let folder = tempfile::tempdir().unwrap();
    let name = "flight::a_signal_that_ends_the_process_writes_what_is_kept";
    let mut running = child::program(name, &[(FOLDER, folder.path().as_os_str())], || {
        let flight = FlightRecorder::steps(5);
        let builder = Profiler::builder().schedule(Schedule::manual()).flight_recorder(flight).save_on_exit();
        let chrome = kernspan::Chrome::to_dir(std::env::var_os(FOLDER).unwrap());
        let (layer, profiler) = builder.export(chrome).build().unwrap();
        let subscriber = tracing_subscriber::layer::SubscriberExt::with(tracing_subscriber::registry(), layer);
        tracing::subscriber::with_default(subscriber, || {
            take_steps(&profiler, 20);
            println!("ready");
            loop {
                take_steps(&profiler, 1);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
    running.wait_for_output("ready");
    running.send(rustix::process::Signal::TERM);
    let ended = running.wait();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended.status), Some(15), "{ended:?}");
    // The window before is always there. The open one is not written if nothing has happened in it yet.
    let windows = std::fs::read_dir(folder.path()).unwrap().count();
    assert!((1..=2).contains(&windows), "{windows} windows, {ended:?}");
}
