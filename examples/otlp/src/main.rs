//! Trains in two processes, as two ranks of one trace, and sends it to an OpenTelemetry collector.
//!
//! `cargo run --release -p otlp-example` sends to `http://localhost:4318`, or where `OTEL_EXPORTER_OTLP_ENDPOINT` says.
//! If no collector listens there, it trains all the same, and says how much was lost. `collector.yaml` is a
//! configuration for a collector, `grafana.json` a dashboard for the metrics.

use kernspan::{Profiler, Schedule};
use kernspan_otlp::{GpuSpans, Otlp};
use std::{
    error::Error,
    process::{Child, Command},
    time::Duration,
};
use tracing::{info, info_span, instrument, level_filters::LevelFilter};
use tracing_subscriber::prelude::*;

const RANKS: u32 = 2;
const SAMPLES: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var_os("RANK").is_some() { train() } else { launch() }
}

/// Starts the ranks, each as a child of the run's own span.
fn launch() -> Result<(), Box<dyn Error>> {
    let otlp = Otlp::from_env().service("launcher").metrics(false);
    let parent = otlp.traceparent();
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(otlp).build()?;
    tracing_subscriber::registry().with(layer).init();

    println!("TRACEPARENT={parent}");
    let program = std::env::current_exe()?;
    let start = |rank: u32| {
        let mut rank_process = Command::new(&program);
        rank_process.env("RANK", rank.to_string()).env("WORLD_SIZE", RANKS.to_string());
        rank_process.env("LOCAL_RANK", rank.to_string()).env("TRACEPARENT", &parent).spawn()
    };
    let mut ranks: Vec<Child> = (0..RANKS).map(start).collect::<Result<_, _>>()?;
    // All are waited for, also if one fails.
    let ended: Vec<_> = ranks.iter_mut().map(Child::wait).collect::<Result<_, _>>()?;
    profiler.finish()?;
    match ended.iter().find(|status| !status.success()) {
        Some(status) => Err(format!("a rank ended with {status}").into()),
        None => Ok(()),
    }
}

/// Trains as one rank.
fn train() -> Result<(), Box<dyn Error>> {
    let otlp = Otlp::from_env()
        .service("spirals")
        .gpu(GpuSpans::Kernels)
        .samples_per_step(SAMPLES as u64)
        .metrics_every(Duration::from_secs(1));
    let (layer, profiler) =
        Profiler::builder().schedule(Schedule::new().wait(20).warmup(1).active(3).repeat(2)).export(otlp).build()?;
    // Problems on the way to the collector are events of the level WARN.
    let warnings = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(LevelFilter::WARN);
    tracing_subscriber::registry().with(layer).with(warnings).init();

    let mut model = Perceptron::default();
    for step in 0..200 {
        train_step(&mut model, step);
        profiler.step();
    }
    profiler.finish_and_print()?;
    Ok(())
}

#[instrument(skip(model))]
fn train_step(model: &mut Perceptron, step: u64) {
    let batch = info_span!("data").in_scope(|| load(step));
    let outputs = info_span!("forward", batch = batch.len()).in_scope(|| model.forward(&batch));
    let (loss, gradient) = info_span!("backward").in_scope(|| backward(&batch, &outputs));
    info_span!("all_reduce", ranks = RANKS).in_scope(|| std::thread::sleep(Duration::from_millis(1)));
    info_span!("update").in_scope(|| model.update(&gradient));
    if loss.is_nan() {
        tracing::error!(step, "the loss is not a number");
    }
    info!(counter.loss = loss);
}

struct Sample {
    point: [f64; 2],
    label: f64,
}

/// Returns points on both sides of a line, new ones for each step.
fn load(step: u64) -> Vec<Sample> {
    let mut state = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64 * 2.0 - 1.0
    };
    let sample = |_| {
        let point = [random(), random()];
        Sample { point, label: f64::from(u8::from(point[0] + 2.0 * point[1] > 0.3)) }
    };
    (0..SAMPLES).map(sample).collect()
}

/// A model of two weights and a bias.
#[derive(Default)]
struct Perceptron([f64; 3]);

impl Perceptron {
    fn forward(&self, batch: &[Sample]) -> Vec<f64> {
        let [x, y, bias] = self.0;
        batch.iter().map(|sample| 1.0 / (1.0 + (-(x * sample.point[0] + y * sample.point[1] + bias)).exp())).collect()
    }

    fn update(&mut self, gradient: &[f64; 3]) {
        self.0.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight -= gradient);
    }
}

fn backward(batch: &[Sample], outputs: &[f64]) -> (f64, [f64; 3]) {
    let (mut loss, mut gradient) = (0.0, [0.0; 3]);
    for (sample, output) in batch.iter().zip(outputs) {
        let error = output - sample.label;
        loss -= if sample.label > 0.5 { output.ln() } else { (1.0 - output).ln() };
        let inputs = [sample.point[0], sample.point[1], 1.0];
        gradient.iter_mut().zip(inputs).for_each(|(sum, input)| *sum += error * input / batch.len() as f64);
    }
    (loss / batch.len() as f64, gradient)
}
