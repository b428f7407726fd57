//! Training loops, and an exporter that collects the summaries of their steps.

use kernspan::{
    Error, Exporter, Profiler, ProfilerBuilder, Report,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter, StepSummary},
};
use std::sync::{Arc, Mutex};
use tracing::info;
use tracing_subscriber::prelude::*;

/// An exporter that collects the summaries of all steps.
#[derive(Clone, Default)]
pub struct StepCollector(Arc<Mutex<Vec<StepSummary>>>);

impl Exporter for StepCollector {
    fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
        Ok(vec![])
    }

    fn steps(&mut self, _: &Run) -> Option<Box<dyn StepExporter>> {
        Some(Box::new(self.clone()))
    }
}

impl StepExporter for StepCollector {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.0.lock().unwrap().extend_from_slice(steps);
        Ok(())
    }
}

impl StepCollector {
    pub fn steps(&self) -> Vec<StepSummary> {
        self.0.lock().unwrap().clone()
    }
}

/// Runs `program` under a profiler set up by `setup`. Returns the summaries of its steps, and the report or error.
pub fn step_summaries(
    setup: impl FnOnce(ProfilerBuilder) -> ProfilerBuilder,
    program: impl FnOnce(&Profiler),
) -> (Vec<StepSummary>, Result<Report, Error>) {
    let kept = StepCollector::default();
    let (layer, profiler) = setup(Profiler::builder().rank(0, 1)).export(kept.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler));
    let done = profiler.finish();
    (kept.steps(), done)
}

/// Returns a training loop of `count` steps, with a loss.
pub fn training(count: u32) -> impl FnOnce(&Profiler) {
    move |profiler| {
        for step in 0..count {
            info!(counter.loss = 1.0 / f64::from(step + 1));
            profiler.step();
        }
    }
}

/// Returns the failures of a run.
pub fn failures(report: Result<Report, Error>) -> Vec<String> {
    match report {
        Ok(_) => Vec::new(),
        Err(Error::Run { failures, .. }) => failures.iter().map(ToString::to_string).collect(),
        Err(other) => panic!("{other}"),
    }
}
