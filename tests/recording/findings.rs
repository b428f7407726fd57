//! Tests of findings in programs without a GPU, recorded as they run.
//!
//! A sleep takes at least as long as it says, and other spans next to nothing, so that shares are lower bounds.

use crate::support::profiled;
use kernspan::{
    Profiler,
    analysis::{Finding, FindingKind},
};
use std::{sync::mpsc, thread, time::Duration};
use tracing::{info_span, instrument};

const STEPS: usize = 6;
const LOADING: Duration = Duration::from_millis(40);

fn findings(program: impl FnOnce(&Profiler)) -> (Vec<Finding>, String) {
    let (_, report) = profiled(|builder| builder, program);
    (report.findings(), report.advice().width(200).to_string())
}

#[instrument]
fn next_batch() {
    thread::sleep(LOADING);
}

#[instrument]
fn train_step() {
    info_span!("forward").in_scope(|| thread::sleep(Duration::from_millis(1)));
}

#[test]
fn a_program_that_waits_for_its_data_is_input_bound() {
    let (findings, advice) = findings(|profiler| {
        for _ in 0..STEPS {
            next_batch();
            train_step();
            profiler.step();
        }
    });
    let first = &findings[0];
    assert_eq!((first.kind, first.path.join(" > ").as_str()), (FindingKind::InputBound, "next_batch"), "{advice}");
    // However slow the machine is, each step waits for its data this long.
    assert!(first.saving.likely >= LOADING && first.saving.least < first.saving.likely, "{first:?}");
    assert!(first.location.as_ref().is_some_and(|location| location.contains("findings.rs:")), "{first:?}");
    assert!(advice.contains("[input-bound]") && advice.contains("No GPU activity was recorded"), "{advice}");
}

#[test]
fn a_program_whose_data_is_there_is_not() {
    // All batches are there before the first step, so that no step waits for one.
    let (sender, batches) = mpsc::channel();
    (0..STEPS).for_each(|batch| sender.send(batch).unwrap());
    let (findings, advice) = findings(|profiler| {
        for _ in 0..STEPS {
            info_span!("next_batch").in_scope(|| batches.recv()).unwrap();
            // So long that receiving is a small part of it, even if the thread does not run for some milliseconds.
            info_span!("train_step").in_scope(|| thread::sleep(Duration::from_millis(200)));
            profiler.step();
        }
    });
    // A busy machine may hold up a thread for some milliseconds; the planted fault above takes 90 % of a step.
    assert!(findings.iter().all(|finding| finding.percent() < 10.0), "{advice}");
}
