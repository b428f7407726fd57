//! Trainings, and what is told of their steps.

use kernspan::{
    Error, Exporter, Profiler, ProfilerBuilder, Report, Trace,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::sync::{Arc, Mutex};
use tracing::info;
use tracing_subscriber::prelude::*;

/// Keeps what it is told.
#[derive(Clone, Default)]
pub struct Kept(Arc<Mutex<Vec<StepSummary>>>);

impl Exporter for Kept {
    fn export(&mut self, _: &Trace) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for Kept {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().unwrap().extend_from_slice(steps);
        Ok(())
    }
}

impl Kept {
    pub fn steps(&self) -> Vec<StepSummary> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs `program` under a profiler set up by `setup`, and gives back what was told of its steps, and what came of the
/// run.
pub fn told_of(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Vec<StepSummary>, Result<Report, Error>) {
    let kept = Kept::default();
    let (layer, profiler) = setup(Profiler::builder().rank(0, 1)).export(kept.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler));
    let done = profiler.finish();
    (kept.steps(), done)
}

/// A training of so many steps, with a loss.
pub fn training(count: u32) -> impl FnOnce(&Profiler) {
    move |profiler| {
        for step in 0..count {
            info!(counter.loss = 1.0 / f64::from(step + 1));
            profiler.step();
        }
    }
}

/// What failed in a run.
pub fn failures(report: Result<Report, Error>) -> Vec<String> {
    match report {
        Ok(_) => Vec::new(),
        Err(Error::Run { failures, .. }) => failures.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}
