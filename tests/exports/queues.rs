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
    let file = format!("{}-{wait}-{arithmetic}-{steps}.kernspan", row["loop"].as_str().unwrap());
    fs::File::open(folder().join(file)).ok().map(|file| kernspan::replay(file).unwrap())
}

fn findings(trace: &Trace) -> Vec<Finding> {
    Analysis::of(trace).findings().to_vec()
}

/// Returns the score of a half of the loops, and prints a row for each window.
fn score(half: &str) -> Score {
    let split: Value = serde_json::from_str(include_str!("../fixtures/queues/split.json")).unwrap();
    let mut score = Score::default();
    println!("{half}:\n| loop | steps | ms without, with the fix | saved | predicted | error |\n|---|---|---|---|---|---|");
    for row in rows().iter().filter(|row| split[half].as_array().unwrap().contains(&row["loop"])) {
        let millis = |key: &str| row[key].as_f64().unwrap() / 1e3;
        let (before, after) = (millis("f32_us"), millis("tf32_us"));
        for (steps, trace) in [1, 3, 6].into_iter().filter_map(|steps| Some((steps, trace(row, "f32", steps)?))) {
            let found = findings(&trace);
            let place = found.iter().position(|finding| finding.kind == FindingKind::NoTensorCores);
            let saving = place.map(|place| found[place].saving).unwrap_or_default();
            let [least, likely, most] = [saving.least, saving.likely, saving.most].map(|it| 1e3 * it.as_secs_f64());
            let saved = before - after;
            let error = likely / saved - 1.0;
            score.windows += 1;
            score.first += usize::from(place == Some(0));
            score.near += usize::from(error.abs() <= 0.2);
            score.within += usize::from(least <= saved && saved <= most);
            println!(
                "| {}{} | {steps} | {before:.2}, {after:.2} | {saved:.2} | {likely:.2} ({least:.2}–{most:.2}) | {:+.0} % | {:.2}",
                row["loop"].as_str().unwrap(),
                if row["sync"] == true { ", synchronized" } else { "" },
                100.0 * error,
                found.first().map_or(0.0, |finding| 1e3 * finding.step.as_secs_f64()),
            );
        }
    }
    println!("{score:?}\n");
    score
}

#[test]
fn full_queues_of_loops_that_were_looked_at() {
    score("tuned");
}

#[test]
fn dump() {
    for row in rows() {
        for arithmetic in ["f32", "tf32"] {
            for steps in [1, 3, 6] {
                let Some(trace) = trace(&row, arithmetic, steps) else { continue };
                let early = trace.work().filter(|work| work.call().is_none()).count();
                let mut nanos: Vec<u64> = trace
                    .api_calls()
                    .filter(|call| call.name().contains("Launch"))
                    .map(|call| call.end().since(call.start()).as_nanos() as u64)
                    .collect();
                let late = trace.work().filter(|work| work.start() > trace.end()).count();
                nanos.sort_unstable();
                let at = |part: f64| nanos[((nanos.len() - 1) as f64 * part) as usize] as f64 / 1e3;
                let delay = trace.work().filter_map(|work| work.delay()).max().unwrap_or_default();
                println!(
                    "{} sync={} {arithmetic} {steps}: early {early} of {}, after the end {late}, launches {} [{:.1} {:.1} {:.1} {:.1} {:.1}] max delay {delay:?} unrecorded {:?} steps {:?}",
                    row["loop"], row["sync"], trace.work().len(), nanos.len(), at(0.1), at(0.5), at(0.9), at(0.97), at(1.0), trace.unrecorded_step(),
                    trace.steps().iter().map(|s| s.duration()).collect::<Vec<_>>(),
                );
            }
        }
    }
}
