//! Many threads, windows and steps, which are small each.

use crate::process::check;
use kernspan::{Chrome, Profiler, ProfilerBuilder, Report, Schedule};
use tracing::info_span;

const LIMIT: usize = 16 << 20;

fn work() {
    info_span!("work").in_scope(|| ());
}

fn loses_nothing(report: &Report) {
    assert!(report.losses().is_empty(), "{}", report.losses());
}

/// Starts ten thousand threads, one after the other, which enter a span each.
fn threads(_: &Profiler) {
    (0..10_000).for_each(|_| std::thread::spawn(work).join().unwrap());
}

#[test]
fn threads_that_have_ended_leave_little() {
    let name = "short_lived::threads_that_have_ended_leave_little";
    check(
        name,
        LIMIT,
        |builder| builder,
        threads,
        |report| {
            loses_nothing(report);
            assert_eq!(report.spans(), 10_000);
        },
    );
}

#[test]
fn threads_that_end_while_nothing_is_recorded_leave_little() {
    let name = "short_lived::threads_that_end_while_nothing_is_recorded_leave_little";
    check(name, LIMIT, |builder| builder.schedule(Schedule::manual()), threads, loses_nothing);
}

/// Ends steps, each with a span.
fn steps(profiler: &Profiler, steps: u64) {
    for _ in 0..steps {
        work();
        profiler.step();
    }
}

#[test]
fn windows_stay_within_the_limit() {
    const STEPS: u64 = 200_000;
    // The thread's queue comes on top of the limit: if it is small, it is not what is measured.
    let one_step = |it: ProfilerBuilder| it.schedule(Schedule::new().active(1)).lane_capacity(1 << 10);
    check(
        "short_lived::windows_stay_within_the_limit",
        LIMIT,
        one_step,
        |it| steps(it, STEPS),
        |report| {
            let losses = report.losses();
            assert!(u64::from(report.windows()) < STEPS && losses.over_memory > 0, "{report:?}");
            assert_eq!(losses.over_memory + losses.lane_full + losses.late, losses.total());
        },
    );
}

#[test]
fn windows_without_spans_stay_within_the_limit() {
    const STEPS: u64 = 300_000;
    let one_step = |it: ProfilerBuilder| it.schedule(Schedule::new().active(1));
    let empty = |profiler: &Profiler| (0..STEPS).for_each(|_| profiler.step());
    check("short_lived::windows_without_spans_stay_within_the_limit", LIMIT, one_step, empty, |report| {
        // A step is recorded or lost, and nothing else is.
        assert_eq!(report.steps().count() + report.losses().over_memory, STEPS);
        assert_eq!(report.losses().over_memory, report.losses().total());
    });
}

#[test]
fn windows_for_chrome_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let chrome = Chrome::to_dir(folder.path());
    let one_step = |it: ProfilerBuilder| it.schedule(Schedule::new().active(1).repeat(3_000)).export(chrome);
    check("short_lived::windows_for_chrome_stay_within_the_limit", LIMIT, one_step, |it| steps(it, 3_000), |_| ());
}

#[test]
fn steps_stay_within_the_limit() {
    const STEPS: u64 = 400_000;
    let steps = |profiler: &Profiler| (0..STEPS).for_each(|_| profiler.step());
    let add_up = |report: &Report| {
        let losses = report.losses();
        // The part of a step that comes after the last one is lost as well.
        let all = report.steps().count() + losses.total();
        assert!((STEPS..=STEPS + 1).contains(&all) && losses.over_memory == losses.total(), "{losses}");
        assert!(losses.over_memory > 0);
    };
    check("short_lived::steps_stay_within_the_limit", LIMIT, |builder| builder, steps, add_up);
}
