//! Tests of hints: the report says why nothing was recorded, or why steps are counted twice.

use crate::support::{child, profiled};
use kernspan::{Activity, Phase, Profiler, ProfilerBuilder, Report, Schedule, report::Hint};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// Takes this many steps, each with a span `train_step`.
fn train(steps: u64) -> impl FnOnce(&Profiler) {
    move |profiler| {
        for _ in 0..steps {
            info_span!("train_step").in_scope(|| ());
            profiler.step();
        }
    }
}

fn report(schedule: Schedule, steps: u64) -> Report {
    profiled(|builder| builder.schedule(schedule), train(steps)).1
}

/// Checks that the report has only this hint, and prints it.
fn check(report: &Report, hint: &Hint, text: &str) {
    assert_eq!(report.hints(), std::slice::from_ref(hint));
    assert_eq!(hint.to_string(), text);
    let printed = report.width(usize::MAX).to_string();
    assert!(printed.contains(&format!("\n{text}\n")), "{printed}");
}

#[test]
fn a_layer_that_is_in_no_subscriber() {
    let (layer, profiler) = Profiler::builder().build().unwrap();
    info_span!("work").in_scope(|| ());
    let report = profiler.finish().unwrap();
    drop(layer);
    let text = "the profiler's layer was never in use: add it to the program's subscriber, as in \
                tracing_subscriber::registry().with(layer).init()";
    check(&report, &Hint::NotInstalled, text);
}

#[test]
fn a_schedule_whose_first_step_was_not_reached() {
    let report = report(Schedule::new().wait(5).warmup(1).active(2), 3);
    let text = "the schedule records from step 6 on, counted from 0, but only 3 steps were taken: run longer, or \
                shorten the schedule's wait";
    check(&report, &Hint::NotReached { first: 6, taken: 3 }, text);
}

#[test]
fn a_schedule_that_needs_steps_without_steps() {
    let report = report(Schedule::steps(2..4), 0);
    let text = "the schedule records from step 2 on, but no step was taken: call step() in each iteration of the \
                loop, or name a span with step_on()";
    check(&report, &Hint::NoSteps { first: 2 }, text);
}

#[test]
fn a_manual_schedule_that_was_never_started() {
    let text = "the schedule is manual, but start() was never called: call it";
    check(&report(Schedule::manual(), 2), &Hint::NeverStarted, text);
}

#[test]
fn a_run_that_needs_no_window_has_no_hint() {
    let manual = |builder: ProfilerBuilder| builder.schedule(Schedule::manual());
    let work = |profiler: &Profiler| {
        info_span!("request").in_scope(|| ());
        profiler.step();
    };
    // As docs/serving.md recommends.
    #[cfg(feature = "serving")]
    assert_eq!(profiled(|builder| manual(builder).request_on("request"), work).1.hints(), []);
    let asked = |profiler: &Profiler| {
        profiler.record_next(2).cancel();
        work(profiler);
    };
    assert_eq!(profiled(manual, asked).1.hints(), []);
    assert_eq!(profiled(manual, work).1.hints(), [Hint::NeverStarted]);
}

#[test]
fn a_function_that_never_records() {
    let text = "the schedule's function did not ask to record any of 2 steps";
    check(&report(Schedule::from_fn(|_| Phase::Wait), 2), &Hint::NothingScheduled { taken: 2 }, text);
}

#[test]
fn a_step_span_that_never_closed() {
    let work = |_: &Profiler| (0..3).for_each(|_| info_span!("train_step").in_scope(|| ()));
    let schedule = || Schedule::new().wait(1).active(1);
    let (_, report) = profiled(|builder| builder.schedule(schedule()).step_on("train_stp"), work);
    let text = "step_on() names the span train_stp, but no span of that name was closed: check the name in the \
                source, and that no filter disables the span";
    check(&report, &Hint::StepSpanNeverClosed { span: "train_stp".into() }, text);
    let (_, report) = profiled(|builder| builder.schedule(schedule()).step_on("train_step"), work);
    assert_eq!(report.hints(), []);
}

#[test]
fn steps_that_are_counted_twice() {
    let (_, report) = profiled(|builder| builder.step_on("train_step"), train(3));
    let text = "steps are counted twice: step_on()'s span train_step ended 3, step() ended 3: remove one of them";
    check(&report, &Hint::StepsCountedTwice { span: "train_step".into(), closed: 3, called: 3 }, text);
    assert_eq!(report.spans(), 3);
}

#[test]
fn a_window_that_the_run_ended_early() {
    let text = "the last window is partial: 3 of 30 active steps were recorded before the run ended";
    check(&report(Schedule::new().wait(2).active(30), 5), &Hint::PartialWindow { recorded: 3, active: 30 }, text);
    let text = "the last window is partial: 1 of 4 active steps were recorded before the run ended";
    check(&report(Schedule::steps(2..6), 3), &Hint::PartialWindow { recorded: 1, active: 4 }, text);
    for (schedule, steps) in [(Schedule::new().active(3), 3), (Schedule::steps(2..), 5), (Schedule::always(), 2)] {
        assert_eq!(report(schedule, steps).hints(), []);
    }
}

#[test]
fn a_profiler_that_is_dropped_at_once_says_so() {
    let dropped = child::program("hints::a_profiler_that_is_dropped_at_once_says_so", &[], || {
        // `_` keeps nothing.
        let (layer, _) = Profiler::builder().build().unwrap();
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || info_span!("work").in_scope(|| ()));
    });
    let dropped = dropped.wait();
    assert_eq!(
        dropped.stderr,
        "kernspan: the profiler was dropped before it had recorded anything: keep it until the run ends, as in \
         `let (layer, profiler) = …`, and call `finish()`\n"
    );
}

#[test]
fn a_window_without_spans() {
    let text = "no span was entered in a window: put #[tracing::instrument] on functions that recorded steps call, and \
                see whether a filter hides them";
    check(&profiled(|builder| builder, |_| ()).1, &Hint::NoSpans, text);
}

#[test]
fn a_run_that_records_what_it_was_to_record() {
    assert_eq!(report(Schedule::new().wait(1).active(1), 3).hints(), []);
    let (_, without_spans) = profiled(|builder| builder.activities([Activity::Kernels]), |_| ());
    assert_eq!(without_spans.hints(), []);
}

#[cfg(feature = "serde")]
#[test]
fn hints_can_be_serialized() {
    let json = serde_json::to_value(report(Schedule::steps(9..), 1)).unwrap();
    assert_eq!(json["hints"][0]["NotReached"]["first"], 9);
}
