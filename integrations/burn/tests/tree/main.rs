//! One program, one tree: the spans that a program enters lie inside each other in the same way in every output.
//!
//! The programs make their spans as a user does, with plain `tracing`, with Candle and with Burn, and each output is
//! read back from what was written or sent. This is the package that can depend on all of them.

#![allow(unreachable_pub, reason = "the parts of a test are not seen by others")]

mod collector;
mod outputs;
mod programs;

use collector::Collector;
use kernspan::{Chrome, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard};
use kernspan_otlp::{GpuSpans, Otlp};
use outputs::Tree;
use tracing_subscriber::prelude::*;

/// The number of steps that are recorded, in two windows.
const RECORDED: u64 = 4;

/// Runs a program of ten steps, of which the schedule records four, with every exporter. Compares each output with the
/// spans of one step, which are paths from the outside in.
fn check(program: impl FnOnce(&Profiler), step: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(2).warmup(1).active(2).repeat(2))
        .export(Html::to_dir(folder.path()))
        .export(Stacks::to_dir(folder.path()))
        .export(Chrome::to_dir(folder.path()))
        .export(Perfetto::to_dir(folder.path()))
        .export(TensorBoard::to_dir(folder.path()))
        .export(Otlp::from_env().endpoint(collector.address()).metrics(false).gpu(GpuSpans::Off))
        .build()
        .unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || program(&profiler));
    let report = profiler.finish().unwrap();
    assert!(report.losses().is_empty(), "{}", report.losses());

    let expected: Tree = step.iter().map(|path| ((*path).to_owned(), RECORDED)).collect();
    let paths: Vec<_> = expected.keys().cloned().collect();
    assert_eq!(outputs::report(&report), expected, "report");
    assert_eq!(outputs::page(folder.path()), expected, "page");
    assert_eq!(outputs::folded_stacks(folder.path()), paths, "folded stacks");
    assert_eq!(outputs::chrome(folder.path()), expected, "Chrome");
    assert_eq!(outputs::perfetto(folder.path()), expected, "Perfetto");
    assert_eq!(outputs::xprof(folder.path()), expected, "XProf");
    assert_eq!(outputs::otlp(&collector.requests()), expected, "OTLP");
}

#[test]
fn spans_that_are_kept_and_entered_again_lie_inside_those_that_are_open() {
    let step = [
        "train_step",
        "train_step;forward",
        "train_step;forward;block",
        "train_step;forward;block;gelu",
        "train_step;forward;block;kept",
        "train_step;forward;block;kept;inner",
        "train_step;forward;block;made elsewhere",
    ];
    check(programs::plain, &step);
}

#[test]
fn candle_layers_lie_inside_the_functions_that_run_them() {
    let step = [
        "data",
        "train_step",
        "train_step;backward",
        "train_step;forward",
        "train_step;forward;block",
        "train_step;forward;block;gelu",
        "train_step;forward;block;l0",
        "train_step;forward;block;l1",
        "train_step;forward;head",
        "train_step;optimizer",
    ];
    check(programs::candle, &step);
}

#[test]
fn burn_layers_lie_inside_the_functions_that_run_them() {
    let step = [
        "data",
        "train_step",
        "train_step;backward",
        "train_step;forward",
        "train_step;forward;block",
        "train_step;forward;block;l0",
        "train_step;optimizer",
    ];
    check(programs::burn, &step);
}
