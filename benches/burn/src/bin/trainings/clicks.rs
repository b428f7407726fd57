//! A model of clicks on advertisements, which learns from the lines of a log.

use crate::{
    calibration::repetitions,
    cases::{CLASSES, Result, Setup, Sizes, Step, forever},
    models::{Mlp, Trainer},
};
use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Int, Tensor, TensorData, activation::relu},
};
use kernspan_burn::data;
use std::{
    fmt::Write,
    ops::Range,
    sync::{Arc, Mutex},
};
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant, workers};

/// The values that the fields of a line are hashed to.
const HASHED: usize = 256;

/// An MLP on the fields of lines, which worker threads parse. They share a log, and hold its lock while they parse, or
/// only to take lines from it.
pub(crate) fn parsed(setup: &Setup, variant: Variant) -> Result<Step> {
    const WORKERS: usize = 5;
    let (device, batch) = (setup.device.clone(), setup.batch());
    let lines: Arc<Vec<String>> = Arc::new(lines(2 * batch, setup.size(setup.amount, 3)));
    let log = Arc::new(Mutex::new(Log { next: 0, end: lines.len() }));
    let load = |_| {
        let (log, lines) = (Arc::clone(&log), Arc::clone(&lines));
        move || {
            let mut log = log.lock().expect("workers that do not panic");
            let taken = log.take(batch);
            if variant == Variant::Fixed {
                drop(log);
                return parse(&lines[taken]);
            }
            // The lock is held until the function returns.
            parse(&lines[taken])
        }
    };
    let mut load = workers::spawn((0..WORKERS).map(load).collect());
    let mut batches = data(std::iter::repeat_with(move || load().upload(&device)));
    let mut train = model(setup);
    Ok(forever(move || {
        let (x, labels) = batches.next().expect("a batch");
        let _step = info_span!("train_step").entered();
        train(x, labels);
    }))
}

/// Returns the fields of a line with which one thread takes almost twice as long to parse a batch as the rest of a step
/// takes.
pub(crate) fn fields(setup: &Setup) -> Result<usize> {
    const FIELDS: usize = 32;
    let (device, mut train) = (setup.device.clone(), model(setup));
    let lines = lines(setup.batch(), FIELDS);
    let clicks = parse(&lines);
    let step = forever(move || {
        let (x, labels) = clicks.clone().upload(&device);
        train(x, labels);
    });
    let parses = repetitions(setup, 1.8, step, || drop(parse(&lines)))?;
    Ok((FIELDS as f64 * parses).round().max(1.0) as usize)
}

/// The lines of a log that nobody has taken.
#[derive(Debug)]
struct Log {
    next: usize,
    end: usize,
}

impl Log {
    /// Takes lines, and begins again after the last.
    fn take(&mut self, count: usize) -> Range<usize> {
        let start = if self.next + count > self.end { 0 } else { self.next };
        self.next = start + count;
        start..self.next
    }
}

/// Makes lines of a label and this many fields.
fn lines(count: usize, fields: usize) -> Vec<String> {
    let mut random = Random::new(61);
    let line = |_| {
        let mut line = random.below(CLASSES).to_string();
        for field in 0..fields {
            write!(line, ",f{field}={:.4}", random.uniform()).expect("memory");
        }
        line
    };
    (0..count).map(line).collect()
}

/// Parses lines. Each field is added to the value that its name is hashed to.
#[instrument(name = "parse_lines", skip_all)]
fn parse(lines: &[String]) -> Clicks {
    let mut values = vec![0_f32; lines.len() * HASHED];
    let mut labels = Vec::with_capacity(lines.len());
    for (line, values) in lines.iter().zip(values.chunks_mut(HASHED)) {
        let mut parts = line.split(',');
        labels.push(parts.next().and_then(|label| label.parse().ok()).unwrap_or(0_i32));
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            // FNV-1a.
            let hash =
                name.bytes().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
            values[hash as usize % HASHED] += value.parse::<f32>().unwrap_or_default();
        }
    }
    let count = lines.len();
    Clicks { values: TensorData::new(values, [count, HASHED]), labels: TensorData::new(labels, [count]) }
}

/// Parsed lines, on the host.
#[derive(Clone, Debug)]
struct Clicks {
    values: TensorData,
    labels: TensorData,
}

impl Clicks {
    fn upload(self, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        (Tensor::from_data(self.values, device), Tensor::from_data(self.labels, device))
    }
}

/// An MLP whose first layer has fewer inputs.
#[derive(Module, Debug)]
struct Model {
    first: Linear,
    rest: Mlp,
}

/// Returns a step of the model.
fn model(setup: &Setup) -> impl FnMut(Tensor<2>, Tensor<1, Int>) + use<> {
    let (width, device) = (setup.width(), &setup.device);
    let model =
        Model { first: LinearConfig::new(HASHED, width).init(device), rest: Mlp::new(width, 4, CLASSES, device) };
    let mut trainer = Trainer::new(model, device);
    move |x, labels| {
        let model = trainer.model();
        let x = info_span!("first").in_scope(|| relu(model.first.forward(x)));
        let logits = model.rest.forward(x);
        let loss = trainer.loss(logits, labels);
        trainer.learn(&loss);
    }
}
