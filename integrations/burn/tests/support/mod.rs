//! A small model, its data, and helpers that train it and read the trace.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher},
        dataset::InMemDataset,
    },
    lr_scheduler::linear::LinearLrSchedulerConfig,
    module::{Module, Param},
    nn::{
        Linear,
        loss::{MseLoss, Reduction},
    },
    optim::{AdamConfig, ModuleOptimizer},
    tensor::{Device, Tensor, TensorData, activation::relu},
    train::{
        InferenceStep, Learner, LearnerModel, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep,
        metric::LossMetric, renderer::CliMetricsRenderer,
    },
};
use kernspan::{
    Collected, Profiler, Report, Schedule, Trace,
    trace::{Span, Step},
};
use kernspan_burn::{Profiled, backward};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tracing_subscriber::prelude::*;

/// A model of two linear layers, always with the same weights.
#[derive(Module, Debug)]
pub struct Net {
    pub fc1: Linear,
    pub fc2: Linear,
}

impl Net {
    pub fn new(device: &Device) -> Self {
        Self { fc1: linear(4, 8, device), fc2: linear(8, 1, device) }
    }

    #[tracing::instrument(skip_all)]
    pub fn forward(&self, batch: Batch) -> RegressionOutput {
        let output = self.fc2.forward(relu(self.fc1.forward(batch.inputs)));
        let loss = MseLoss::new().forward(output.clone(), batch.targets.clone(), Reduction::Mean);
        RegressionOutput::new(loss, output, batch.targets)
    }

    pub fn weights(&self) -> Vec<f32> {
        let of = |layer: &Linear| layer.weight.val().into_data().try_into_vec::<f32>().unwrap();
        [of(&self.fc1), of(&self.fc2)].concat()
    }
}

fn linear(inputs: usize, outputs: usize, device: &Device) -> Linear {
    let weights = (0..inputs * outputs).map(|index| (index as f32 * 0.7).sin() * 0.5).collect();
    let weight = Tensor::<2>::from_data(TensorData::new(weights, [inputs, outputs]), device);
    let bias = Tensor::<1>::zeros([outputs], device);
    Linear { weight: Param::from_tensor(weight), bias: Some(Param::from_tensor(bias)) }
}

#[derive(Clone, Debug)]
pub struct Batch {
    pub inputs: Tensor<2>,
    pub targets: Tensor<2>,
    /// Makes a training step panic.
    bad: bool,
}

impl TrainStep for Net {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> TrainOutput<RegressionOutput> {
        assert!(!batch.bad, "a bad batch");
        let output = self.forward(batch);
        TrainOutput::new(self, backward(&output.loss), output)
    }
}

impl InferenceStep for Net {
    type Input = Batch;
    type Output = RegressionOutput;

    fn step(&self, batch: Batch) -> RegressionOutput {
        self.forward(batch)
    }
}

/// A batcher that counts the batches it makes.
#[derive(Clone, Default)]
pub struct Batches {
    pub made: Arc<AtomicUsize>,
    /// A factor of the targets.
    pub scale: f32,
    /// The batch that makes training panic, counted from 1.
    pub bad: Option<usize>,
    /// A function that is called when the batch of this number is made.
    pub at: Option<(usize, Arc<dyn Fn() + Send + Sync>)>,
}

impl Batcher<f32, Batch> for Batches {
    fn batch(&self, items: Vec<f32>, device: &Device) -> Batch {
        let made = 1 + self.made.fetch_add(1, Ordering::Relaxed);
        self.at.iter().filter(|(at, _)| *at == made).for_each(|(_, call)| call());
        let inputs = items.iter().flat_map(|x| [*x, x.sin(), x.cos(), 1.0]).collect();
        let targets = items.iter().map(|x| self.scale * (2.0 * x.sin() + 0.5)).collect();
        Batch {
            inputs: Tensor::from_data(TensorData::new(inputs, [items.len(), 4]), device),
            targets: Tensor::from_data(TensorData::new(targets, [items.len(), 1]), device),
            bad: self.bad == Some(made),
        }
    }
}

pub type Loader = Arc<dyn DataLoader<Batch>>;

/// Returns a loader of this many batches of four items, always in the same order.
pub fn loader(batches: usize, batcher: Batches) -> Loader {
    let items = (0..4 * batches).map(|item| item as f32 * 0.1).collect();
    DataLoaderBuilder::new(batcher).batch_size(4).shuffle(7).build(InMemDataset::new(items))
}

pub fn batches() -> Batches {
    Batches { scale: 1.0, ..Batches::default() }
}

pub fn device() -> Device {
    Device::flex().autodiff()
}

pub fn adam() -> ModuleOptimizer {
    AdamConfig::new().init()
}

/// Returns a learner whose learning rate decreases with each step, so that the number of steps affects the result.
pub fn learner<M: LearnerModel>(model: M) -> Learner<M> {
    let rate = LinearLrSchedulerConfig::new(0.02, 0.001, 100).init().unwrap();
    Learner::new(model, adam(), rate)
}

/// Returns Burn's training, which writes its metrics to files.
pub fn supervised<M>(directory: &Path, train: Loader, valid: Loader) -> SupervisedTraining<M>
where
    M: LearnerModel
        + TrainStep<Input = Batch, Output = RegressionOutput>
        + InferenceStep<Input = Batch, Output = RegressionOutput>,
{
    SupervisedTraining::new(directory, train, valid)
        .metrics((LossMetric::new(),))
        .with_application_logger(None)
        .renderer(Box::new(CliMetricsRenderer::new()))
}

/// Returns the files under a directory with their contents.
pub fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            files.extend(self::files(&path).into_iter().map(|(inner, content)| (format!("{name}/{inner}"), content)));
        } else {
            files.insert(name, fs::read(&path).unwrap());
        }
    }
    files
}

/// Runs a function under a profiler whose steps are iterations, and returns its only window.
pub fn profiled<T>(schedule: Schedule, run: impl FnOnce() -> T) -> (Arc<Trace>, Report, T) {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(schedule).step_on(Profiled::ITERATION);
    let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
    let result = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), run);
    let report = profiler.finish().unwrap();
    (collected.only(), report, result)
}

/// Runs a function without a profiler, but with a subscriber: the first thread that reaches a span's callsite registers
/// it for all threads, and without a subscriber it would be disabled for all.
pub fn plain<T>(run: impl FnOnce() -> T) -> T {
    tracing::subscriber::with_default(tracing_subscriber::registry(), run)
}

/// Returns the names of a step's spans, indented by two spaces per level.
pub fn outline(trace: &Trace, step: u64) -> Vec<String> {
    let of_step = |span: &Span<'_>| span.step().is_some_and(|its| its.number() == step);
    let depth = |span: Span<'_>| std::iter::successors(span.parent(), |span| span.parent()).count();
    trace.spans().filter(of_step).map(|span| format!("{}{}", "  ".repeat(depth(span)), span.name())).collect()
}

pub fn count(trace: &Trace, name: &str) -> usize {
    trace.spans().filter(|span| span.name() == name).count()
}

/// Returns the numbers of the complete steps.
pub fn steps(trace: &Trace) -> Vec<u64> {
    trace.steps().iter().filter(|step| !step.cut().any()).map(Step::number).collect()
}
