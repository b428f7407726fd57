//! A recorder in a running program.

use kernspan::{Collected, Profiler, Schedule};
use kernspan_check::{Baseline, CheckVerdict, Recorder, check};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// Records two windows of three steps, in each of which `forward` is called `calls` times.
fn record(calls: u32) -> (Baseline, Baseline) {
    let (recorder, collected) = (Recorder::new(), Collected::new());
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(1).active(3).repeat(2))
        .export(recorder.clone())
        .export(collected.clone())
        .build()
        .unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..8 {
            info_span!("train_step").in_scope(|| {
                (0..calls).for_each(|_| info_span!("forward", op.flops = 100).in_scope(|| ()));
            });
            profiler.step();
        }
    });
    profiler.finish().unwrap();
    (recorder.baseline(), Baseline::of(collected.traces().iter().map(|trace| &**trace)))
}

#[test]
fn a_recorder_has_the_baseline_of_all_windows() {
    let (recorded, expected) = record(2);
    assert_eq!(recorded, expected);
    assert_eq!((recorded.runs.len(), recorded.steps()), (1, 6));
    let json = recorded.to_json();
    assert_eq!(Baseline::from_json(json.as_bytes()).unwrap(), recorded);
}

#[test]
fn more_work_in_a_step_is_worse() {
    let [(one, _), (other, _)] = [record(2), record(3)];
    let check = check(&other, &one);
    assert_eq!(check.verdict(), CheckVerdict::Worse, "{check}");
    assert_eq!(check.worst_span(), Some("forward"), "{check}");
    let text = check.to_string();
    assert!(
        text.contains("train_step > forward: 100 more floating-point operations a step (300 instead of 200)"),
        "{text}"
    );
}

#[test]
fn a_recorder_without_windows_has_no_runs() {
    assert_eq!(Recorder::new().baseline(), Baseline::of([]));
}
