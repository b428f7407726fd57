//! A profiled training loop in plain Rust: an MLP learns to distinguish two spirals.
//!
//! `cargo run --release -p quickstart` prints a table of times and writes traces to `runs/quickstart`.

use kernspan::{Chrome, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard};
use std::sync::mpsc;
use tracing::{info, info_span, instrument};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), kernspan::Error> {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(100).warmup(5).active(5).repeat(2))
        .export(Chrome::to_dir("runs/quickstart"))
        .export(Perfetto::to_dir("runs/quickstart"))
        .export(Stacks::to_dir("runs/quickstart"))
        .export(Html::to_dir("runs/quickstart"))
        .export(TensorBoard::to_dir("runs/quickstart"))
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let batches = load_in_background(400);
    let mut model = Mlp::new(&[2, 64, 64, 2]);
    let mut accuracy = 0.0;
    while let Some(batch) = next_batch(&batches) {
        accuracy = train_step(&mut model, &batch);
        profiler.step();
    }
    profiler.finish_and_print()?;
    println!("accuracy on the last batch: {:.0} %", 100.0 * accuracy);
    println!("open the .json or .pftrace file at https://ui.perfetto.dev");
    Ok(())
}

#[instrument(skip_all)]
fn train_step(model: &mut Mlp, batch: &Batch) -> f32 {
    let activations = model.forward(&batch.points);
    let (loss, accuracy, gradient) = cross_entropy(&activations[activations.len() - 1], &batch.labels);
    let gradients = model.backward(&activations, gradient);
    model.update(&gradients, 0.5);
    info!(counter.loss = loss, counter.accuracy = accuracy);
    accuracy
}

const BATCH: usize = 128;

struct Batch {
    points: Vec<f32>,
    labels: Vec<usize>,
}

/// Waits for the next batch; the span shows how long the loop waits for data.
#[instrument(skip_all)]
fn next_batch(batches: &mpsc::Receiver<Batch>) -> Option<Batch> {
    batches.recv().ok()
}

fn load_in_background(count: u64) -> mpsc::Receiver<Batch> {
    let (sender, batches) = mpsc::sync_channel(2);
    let load = move || (1..=count).map(spirals).try_for_each(|batch| sender.send(batch)).unwrap_or(());
    std::thread::Builder::new().name("loader".to_owned()).spawn(load).expect("a thread can be started");
    batches
}

/// Returns points of two intertwined spirals, with a little noise.
#[instrument]
fn spirals(seed: u64) -> Batch {
    let mut random = Random(seed);
    let labels: Vec<_> = (0..BATCH).map(|point| point % 2).collect();
    let point = |&label: &usize| {
        let radius = random.next();
        let angle = 4.0 * radius + label as f32 * std::f32::consts::PI + 0.2 * (random.next() - 0.5);
        [radius * angle.cos(), radius * angle.sin()]
    };
    Batch { points: labels.iter().flat_map(point).collect(), labels }
}

/// A model of fully connected layers with ReLU between them.
struct Mlp {
    layers: Vec<Linear>,
}

/// A fully connected layer. Its weights have a row for each input and one for the bias.
struct Linear {
    weights: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Mlp {
    fn new(sizes: &[usize]) -> Self {
        let mut random = Random(7);
        let layers = sizes.windows(2).map(|pair| {
            let scale = (12.0 / pair[0] as f32).sqrt();
            let weights = (0..(pair[0] + 1) * pair[1]).map(|_| scale * (random.next() - 0.5)).collect();
            Linear { weights, inputs: pair[0], outputs: pair[1] }
        });
        Self { layers: layers.collect() }
    }

    #[instrument(skip_all)]
    fn forward(&self, points: &[f32]) -> Vec<Vec<f32>> {
        let mut activations = vec![points.to_vec()];
        for (index, layer) in self.layers.iter().enumerate() {
            let mut output = layer.forward(&activations[index]);
            if index + 1 < self.layers.len() {
                info_span!("relu").in_scope(|| output.iter_mut().for_each(|x| *x = x.max(0.0)));
            }
            activations.push(output);
        }
        activations
    }

    #[instrument(skip_all)]
    fn backward(&self, activations: &[Vec<f32>], mut gradient: Vec<f32>) -> Vec<Vec<f32>> {
        let mut gradients = Vec::new();
        for (layer, input) in self.layers.iter().zip(activations).rev() {
            let (weights, mut inputs) = layer.backward(input, &gradient);
            gradients.push(weights);
            info_span!("relu_backward").in_scope(|| {
                inputs.iter_mut().zip(input).filter(|(_, x)| **x <= 0.0).for_each(|(dx, _)| *dx = 0.0);
            });
            gradient = inputs;
        }
        gradients.reverse();
        gradients
    }

    #[instrument(skip_all)]
    fn update(&mut self, gradients: &[Vec<f32>], rate: f32) {
        for (layer, gradient) in self.layers.iter_mut().zip(gradients) {
            layer.weights.iter_mut().zip(gradient).for_each(|(weight, gradient)| *weight -= rate * gradient);
        }
    }
}

impl Linear {
    #[instrument(name = "linear", skip_all, fields(
        op.shape.input = ?[BATCH, self.inputs],
        op.dtype.input = "f32",
        op.flops = 2 * BATCH * self.inputs * self.outputs,
    ))]
    fn forward(&self, input: &[f32]) -> Vec<f32> {
        let bias = &self.weights[self.inputs * self.outputs..];
        let mut output = bias.repeat(BATCH);
        for (row, output) in input.chunks(self.inputs).zip(output.chunks_mut(self.outputs)) {
            for (x, weights) in row.iter().zip(self.weights.chunks(self.outputs)) {
                output.iter_mut().zip(weights).for_each(|(y, weight)| *y += x * weight);
            }
        }
        output
    }

    /// Returns the gradients of the weights and of the input.
    #[instrument(name = "linear_backward", skip_all, fields(
        op.shape.input = ?[BATCH, self.inputs],
        op.dtype.input = "f32",
        op.flops = 4 * BATCH * self.inputs * self.outputs,
    ))]
    fn backward(&self, input: &[f32], gradient: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let mut weights = vec![0.0; self.weights.len()];
        let mut inputs = vec![0.0; input.len()];
        let rows = input.chunks(self.inputs).zip(gradient.chunks(self.outputs)).zip(inputs.chunks_mut(self.inputs));
        for ((input, gradient), inputs) in rows {
            for (index, (x, dx)) in input.iter().chain(&[1.0]).zip(inputs.iter_mut().chain(&mut [0.0])).enumerate() {
                let range = index * self.outputs..(index + 1) * self.outputs;
                weights[range.clone()].iter_mut().zip(gradient).for_each(|(dw, dy)| *dw += x * dy);
                *dx = self.weights[range].iter().zip(gradient).map(|(w, dy)| w * dy).sum();
            }
        }
        (weights, inputs)
    }
}

/// Returns the loss, the accuracy, and the gradient of the loss.
#[instrument(skip_all)]
fn cross_entropy(logits: &[f32], labels: &[usize]) -> (f32, f32, Vec<f32>) {
    let (mut loss, mut right, mut gradient) = (0.0, 0.0, Vec::with_capacity(logits.len()));
    for (logits, &label) in logits.chunks(2).zip(labels) {
        let probability = 1.0 / (1.0 + (logits[1 - label] - logits[label]).exp());
        loss -= probability.ln() / BATCH as f32;
        right += f32::from(u8::from(probability > 0.5)) / BATCH as f32;
        let slope = (1.0 - probability) / BATCH as f32;
        gradient.extend((0..2).map(|class| if class == label { -slope } else { slope }));
    }
    (loss, right, gradient)
}

/// A generator of pseudo-random numbers between 0 and 1 (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 24) as f32
    }
}
