//! Profiles a convolutional network that Burn trains on images like MNIST's.
//!
//! ```sh
//! cargo run --release -p burn-mnist                     # on the CPU, with a loop of its own
//! cargo run --release -p burn-mnist -- supervised       # with burn-train's loop, its metrics and validation
//! cargo run --release -p burn-mnist --features cuda     # on an NVIDIA GPU
//! cargo run --release -p burn-mnist --features samples  # with call stacks, on Linux
//! ```
//!
//! Call stacks have lines with `CARGO_PROFILE_RELEASE_DEBUG=line-tables-only`.
//!
//! The lines for the profiler are those with `profiler`, `Profiled`, `training`, `validation`, `backward` and
//! `#[instrument]`.

mod digits;
mod model;

use burn::{
    data::dataloader::{DataLoader, DataLoaderBuilder},
    lr_scheduler::constant::ConstantLr,
    module::Module,
    optim::{AdamConfig, GradientsParams},
    tensor::Device,
    train::{
        Learner, SupervisedTraining,
        metric::{AccuracyMetric, LossMetric},
    },
};
use digits::{Batch, Digits, Stack};
use kernspan::{Activity, Chrome, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard};
use kernspan_burn::{Profiled, backward, modules, training, validation};
use model::Model;
use std::{error::Error, sync::Arc};
use tracing_subscriber::prelude::*;

const BATCH: usize = 64;
/// The number of training digits, which make 150 steps.
const DIGITS: usize = 150 * BATCH;
/// Epochs of burn-train's loop, short enough that validation is among the recorded steps.
const EPOCHS: usize = 5;
const UNSEEN: usize = 1000;
const RATE: f64 = 1e-3;
const RUNS: &str = "runs/burn-mnist";

fn main() -> Result<(), Box<dyn Error>> {
    let builder = Profiler::builder();
    #[cfg(feature = "samples")]
    let builder = builder.samples(kernspan::Samples::default());
    let (layer, profiler) = builder
        .schedule(Schedule::new().wait(20).warmup(2).active(10).repeat(2))
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .export(Chrome::to_dir(RUNS))
        .export(Perfetto::to_dir(RUNS))
        .export(Stacks::to_dir(RUNS))
        .export(Html::to_dir(RUNS))
        .export(TensorBoard::to_dir(RUNS))
        .step_on(Profiled::ITERATION)
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let device = device();
    let attached = kernspan_burn::attach(&profiler, &device)?;
    println!("{}", attached.coverage());

    let model = Model::new(&device);
    println!("{}", modules(&model));
    let model = match std::env::args().nth(1).as_deref() {
        None => by_hand(model, &device)?,
        Some("supervised") => supervised(model, &device)?,
        Some(other) => return Err(format!("unknown argument `{other}`: expected `supervised` or none").into()),
    };
    let right = recognised(&model.valid(), &device)?;
    println!("{right} of {UNSEEN} digits recognised\n");
    profiler.finish_and_print()?;
    if right < UNSEEN * 95 / 100 { Err("it did not learn".into()) } else { Ok(()) }
}

fn device() -> Device {
    #[cfg(feature = "cuda")]
    let device = Device::cuda(0);
    #[cfg(not(feature = "cuda"))]
    let device = Device::flex();
    // With a fixed seed, random weights and dropout are the same in every run.
    device.seed(1);
    device.autodiff()
}

/// Returns a loader of digits in batches.
fn loader(seed: u64, count: usize, device: &Device) -> Arc<dyn DataLoader<Batch>> {
    DataLoaderBuilder::new(Stack).batch_size(BATCH).set_device(device.clone()).build(Digits { seed, count })
}

fn by_hand(mut model: Model, device: &Device) -> Result<Model, Box<dyn Error>> {
    let mut optimizer = Profiled::new(AdamConfig::new().init());
    for (step, batch) in training(loader(1, DIGITS, device)).iter().enumerate() {
        let output = model.classify(batch?);
        let gradients = GradientsParams::from_grads(backward(&output.loss), &model);
        model = optimizer.step(RATE, model, gradients);
        // Reading the loss waits for the device, so it is not done in every step.
        if step % 25 == 0 {
            let loss = output.loss.into_scalar::<f32>();
            tracing::info!(counter.loss = loss);
            println!("step {step:3}: loss {loss:.3}");
        }
    }
    Ok(model)
}

fn supervised(model: Model, device: &Device) -> Result<Model, Box<dyn Error>> {
    let loaders = (training(loader(1, DIGITS / EPOCHS, device)), validation(loader(3, UNSEEN, device)));
    let result = SupervisedTraining::new(RUNS, loaders.0, loaders.1)
        .metrics((LossMetric::new(), AccuracyMetric::new()))
        // Burn's logger would try to install its own subscriber.
        .with_application_logger(None)
        .num_epochs(EPOCHS)
        .summary()
        .launch(Learner::new(Profiled::new(model), AdamConfig::new().init(), ConstantLr::new(RATE)));
    match result.error {
        None => Ok(result.model.into_inner()),
        Some(error) => Err(error.into()),
    }
}

/// Returns the number of unseen digits that the model recognises.
fn recognised(model: &Model, device: &Device) -> Result<usize, Box<dyn Error>> {
    let mut right = 0;
    for batch in loader(2, UNSEEN, &device.clone().inner()).iter() {
        let Batch { images, labels } = batch?;
        let guesses = model.forward(images).argmax(1).flatten::<1>(0, 1);
        right += guesses.equal(labels).int().sum().into_scalar::<i64>() as usize;
    }
    Ok(right)
}
