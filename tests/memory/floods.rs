//! One window with more than fits.

use crate::process::check;
use kernspan::{
    Chrome, Html, Perfetto, Profiler, ProfilerBuilder, Report, Schedule, Stacks, TensorBoard, trace::Operation,
};
use std::sync::Arc;
use tracing::{info, info_span};

const LIMIT: usize = 32 << 20;

/// Enters more spans than fit.
fn spans(_: &Profiler) {
    (0..500_000).for_each(|_| info_span!("work").in_scope(|| ()));
}

/// Enters more spans with fields than fit.
fn fields(_: &Profiler) {
    for turn in 0..150_000_u64 {
        let span = info_span!("work", turn, name = "a short text", late = tracing::field::Empty).entered();
        span.record("late", turn);
    }
}

/// Enters more spans than fit, ten deep.
fn nested(_: &Profiler) {
    for _ in 0..50_000 {
        let _open: Vec<_> = (0..10).map(|_| info_span!("nested").entered()).collect();
    }
}

/// Writes more events with texts than fit.
fn events(_: &Profiler) {
    (0..300_000).for_each(|turn| info!(turn, "an event of turn {turn}"));
}

/// Reports more operations than fit.
fn operations(profiler: &Profiler) {
    let hand_over = profiler.hand_over();
    let add = Arc::new(Operation::new("add"));
    for turn in 0..300_000_u64 {
        let once = Arc::new(Operation::new("once").with("turn", turn));
        hand_over.operation(if turn % 2 == 0 { &add } else { &once });
    }
}

/// Lanes take memory besides, with the operations that wait in them if the collector is held up, so they are small.
fn small_lanes(builder: ProfilerBuilder) -> ProfilerBuilder {
    builder.lane_capacity(1 << 14)
}

fn is_over_memory(report: &Report) {
    let losses = report.losses();
    assert!(losses.over_memory > 0 && losses.over_memory + losses.lane_full == losses.total(), "{losses}");
}

#[test]
fn a_flood_of_spans_stays_within_the_limit() {
    check("floods::a_flood_of_spans_stays_within_the_limit", LIMIT, |builder| builder, spans, is_over_memory);
}

#[test]
fn spans_on_several_threads_stay_within_the_limit() {
    let threads = |profiler: &Profiler| {
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| spans(profiler)))));
    };
    check("floods::spans_on_several_threads_stay_within_the_limit", LIMIT, small_lanes, threads, is_over_memory);
}

#[test]
fn spans_in_spans_stay_within_the_limit() {
    check("floods::spans_in_spans_stay_within_the_limit", LIMIT, |builder| builder, nested, is_over_memory);
}

#[test]
fn spans_with_fields_stay_within_the_limit() {
    check("floods::spans_with_fields_stay_within_the_limit", LIMIT, |builder| builder, fields, is_over_memory);
}

#[test]
fn events_with_text_stay_within_the_limit() {
    check("floods::events_with_text_stay_within_the_limit", LIMIT, |builder| builder, events, is_over_memory);
}

#[test]
fn operations_stay_within_the_limit() {
    check("floods::operations_stay_within_the_limit", LIMIT, small_lanes, operations, is_over_memory);
}

#[test]
fn spans_for_chrome_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let chrome = Chrome::to_dir(folder.path());
    check("floods::spans_for_chrome_stay_within_the_limit", LIMIT, |it| it.export(chrome), spans, is_over_memory);
}

#[test]
fn spans_for_perfetto_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let perfetto = Perfetto::to_dir(folder.path());
    check("floods::spans_for_perfetto_stay_within_the_limit", LIMIT, |it| it.export(perfetto), spans, is_over_memory);
}

#[test]
fn spans_for_a_page_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let page = Html::to_dir(folder.path());
    check("floods::spans_for_a_page_stay_within_the_limit", LIMIT, |it| it.export(page), spans, is_over_memory);
}

#[test]
fn spans_in_spans_for_a_page_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let page = Html::to_dir(folder.path());
    let name = "floods::spans_in_spans_for_a_page_stay_within_the_limit";
    check(name, LIMIT, |it| it.export(page), nested, is_over_memory);
}

#[test]
fn spans_for_tensorboard_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let board = TensorBoard::to_dir(folder.path());
    let name = "floods::spans_for_tensorboard_stay_within_the_limit";
    check(name, LIMIT, |it| it.export(board), spans, is_over_memory);
}

#[test]
fn spans_in_spans_for_tensorboard_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let board = TensorBoard::to_dir(folder.path());
    let name = "floods::spans_in_spans_for_tensorboard_stay_within_the_limit";
    check(name, LIMIT, |it| it.export(board), nested, is_over_memory);
}

#[test]
fn fields_for_tensorboard_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let board = TensorBoard::to_dir(folder.path());
    let name = "floods::fields_for_tensorboard_stay_within_the_limit";
    check(name, LIMIT, |it| it.export(board), fields, is_over_memory);
}

#[test]
fn operations_for_tensorboard_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let board = TensorBoard::to_dir(folder.path());
    let name = "floods::operations_for_tensorboard_stay_within_the_limit";
    check(name, LIMIT, |it| small_lanes(it.export(board)), operations, is_over_memory);
}

#[test]
fn spans_for_stacks_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let stacks = Stacks::to_dir(folder.path());
    check("floods::spans_for_stacks_stay_within_the_limit", LIMIT, |it| it.export(stacks), spans, is_over_memory);
}

#[test]
fn fields_for_chrome_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let chrome = Chrome::to_dir(folder.path());
    check("floods::fields_for_chrome_stay_within_the_limit", LIMIT, |it| it.export(chrome), fields, is_over_memory);
}

#[test]
fn several_full_windows_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let chrome = Chrome::to_dir(folder.path());
    let windows = |profiler: &Profiler| {
        for _ in 0..6 {
            (0..100_000).for_each(|_| info_span!("work").in_scope(|| ()));
            profiler.step();
        }
    };
    let one_step = |it: ProfilerBuilder| it.schedule(Schedule::new().active(1)).export(chrome);
    check("floods::several_full_windows_stay_within_the_limit", LIMIT, one_step, windows, |report| {
        assert_eq!(report.spans() + report.losses().total(), 600_000);
    });
}

#[test]
fn spans_that_are_entered_twice_stay_within_the_limit() {
    let twice = |_: &Profiler| {
        for turn in 0..150_000_u64 {
            let span = info_span!("work", turn, name = "a short text");
            (0..2).for_each(|_| span.in_scope(|| ()));
        }
    };
    check("floods::spans_that_are_entered_twice_stay_within_the_limit", LIMIT, |it| it, twice, is_over_memory);
}
