//! Findings of loops that are bound by the GPU, whose launch queue is full (`benches/gpu`, program `queues`): most
//! kernels that run in a window were launched before it. The fault is products of `f32` matrices, the fix TF32, and the
//! saving is compared with the one that was measured without a profiler.
//!
//! `split.json` says which loops rules were tuned by. `KERNSPAN_QUEUES=FOLDER` reads recordings from another folder:
//! those of large windows are not in the repository.

use kernspan::{
    Trace,
    analysis::{Analysis, Finding, FindingKind},
};
use serde_json::Value;
use std::{fs, path::PathBuf};

/// How many windows there are, and in how many of them the finding was right.
#[derive(Debug, Default, PartialEq, Eq)]
struct Score {
    windows: usize,
    /// Products are the first finding.
    first: usize,
    /// The likely saving is within a fifth of the measured one.
    near: usize,
    /// The measured saving is within the bounds.
    within: usize,
}

/// The part of a step's time for which the GPU works, from which on it is what bounds the step.
const BOUND: f64 = 0.9;
/// The part of a step that the fix must save to be judged, as for `trainings`.
const MEASURABLE: f64 = 0.08;

fn folder() -> PathBuf {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/queues");
    std::env::var_os("KERNSPAN_QUEUES").map_or_else(|| fixtures.into(), PathBuf::from)
}

fn rows() -> Vec<Value> {
    let text = fs::read_to_string(folder().join("measured.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the trace of a window, if it was kept.
fn trace(row: &Value, arithmetic: &str, steps: u32) -> Option<Trace> {
    let wait = if row["sync"].as_bool().unwrap() { "sync" } else { "async" };
    let name = format!("{}-{wait}-{arithmetic}-{steps}", row["loop"].as_str().unwrap());
    let path = |extension: &str| folder().join(format!("{name}.{extension}"));
    if let Ok(file) = fs::File::open(path("kernspan")) {
        return Some(kernspan::replay(file).unwrap());
    }
    let path = ["json.gz", "json"].map(path).into_iter().find(|path| path.exists())?;
    kernspan::read(path).unwrap().pop()
}

fn findings(trace: &Trace) -> Vec<Finding> {
    Analysis::of(trace).findings().to_vec()
}

/// Returns the score of a half of the loops, and prints a row for each window.
fn score(half: &str) -> Score {
    let split: Value = serde_json::from_str(include_str!("../fixtures/queues/split.json")).unwrap();
    let mut score = Score::default();
    println!(
        "{half}:\n| loop | steps | ms without, with the fix | saved | predicted | error |\n|---|---|---|---|---|---|"
    );
    for row in rows().iter().filter(|row| split[half].as_array().unwrap().contains(&row["loop"])) {
        let millis = |key: &str| row[key].as_f64().unwrap() / 1e3;
        let (before, after) = (millis("f32_us"), millis("tf32_us"));
        for (steps, trace) in [1, 3, 6].into_iter().filter_map(|steps| Some((steps, trace(row, "f32", steps)?))) {
            let nanos = |work: kernspan::trace::Work<'_>| work.duration().as_nanos() as f64;
            let of_gpu =
                trace.work().filter(|work| work.call().is_some()).map(nanos).sum::<f64>() / 1e6 / f64::from(steps);
            let found = findings(&trace);
            let place = found.iter().position(|finding| finding.kind == FindingKind::NoTensorCores);
            let saving = place.map(|place| found[place].saving).unwrap_or_default();
            let [least, likely, most] = [saving.least, saving.likely, saving.most].map(|it| 1e3 * it.as_secs_f64());
            let saved = before - after;
            let error = likely / saved - 1.0;
            if of_gpu < BOUND * before || saved < MEASURABLE * before {
                continue;
            }
            score.windows += 1;
            score.first += usize::from(place == Some(0));
            score.near += usize::from(error.abs() <= 0.2);
            score.within += usize::from(least <= saved && saved <= most);
            println!(
                "| {}{} | {steps} | {before:.2}, {after:.2} | {saved:.2} | {likely:.2} ({least:.2}–{most:.2}) | \
                 {:+.0} % |",
                row["loop"].as_str().unwrap(),
                if row["sync"] == true { ", synchronized" } else { "" },
                100.0 * error,
            );
        }
    }
    println!("{score:?}\n");
    score
}

#[test]
fn savings_hold_in_loops_that_rules_were_tuned_by() {
    let Score { windows, near, within, .. } = score("tuned");
    assert_eq!((near, within), (windows, windows));
}

#[test]
fn savings_hold_in_loops_that_were_looked_at_last() {
    let Score { windows, near, within, .. } = score("held_out");
    assert_eq!((near, within), (windows, windows));
}

#[test]
fn a_step_takes_as_long_as_it_was_measured_to() {
    let mut windows = 0;
    for row in rows() {
        for trace in [1, 3, 6].into_iter().filter_map(|steps| trace(&row, "f32", steps)) {
            let step = Analysis::of(&trace).step_time().unwrap().mean.as_secs_f64() * 1e6;
            let measured = row["f32_us"].as_f64().unwrap();
            // Recording makes the host slower, and the GPU's clock differs between runs.
            assert!((step / measured - 1.0).abs() < 0.03, "{row}: {step:.1} µs");
            windows += 1;
        }
    }
    assert!(windows > 60, "{windows}");
}
