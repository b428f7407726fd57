mod collection;
mod hardware;
mod received;
#[cfg(feature = "serving")]
mod requests;
mod steps;
mod vitals;
mod windows;

use super::{Measured, Metrics};
use crate::{environment::Environment, options::Options, run_trace::RunTrace, settings::Settings};
use kernspan::{
    Phase,
    export::StepSummary,
    trace::{Metadata, sample::at},
};
use std::time::Duration;

const DELTA: (&str, &str) = ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta");

fn settings(variables: &[(&str, &str)]) -> Settings {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    Settings::resolve(&Options::default(), &Environment::read(find))
}

fn run(settings: &Settings) -> RunTrace {
    RunTrace::new(&Metadata::default(), at(0), None, settings.parent, settings.sampler)
}

fn metrics(samples_per_step: Option<u64>, variables: &[(&str, &str)]) -> Metrics {
    let settings = Settings { samples_per_step, ..settings(variables) };
    Metrics::new(at(0), run(&settings), &settings)
}

fn step(number: u64, phase: Phase, micros: u64, counters: &[(&'static str, f64)]) -> StepSummary {
    let mut step = StepSummary::new(number, phase, at(1000 * number), Duration::from_micros(micros));
    step.counters = counters.to_vec();
    step
}

/// The counters after the last step.
fn unended(number: u64, counters: &[(&'static str, f64)]) -> StepSummary {
    let mut step = step(number, Phase::Wait, 1, counters);
    step.ended = false;
    step
}

fn measured(metrics: &mut Metrics) -> &mut Measured {
    metrics.measured.as_mut().unwrap()
}
