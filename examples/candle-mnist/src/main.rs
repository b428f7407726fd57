//! Profiles a convolutional network that Candle trains on images like MNIST's.
//!
//! ```sh
//! cargo run --release -p candle-mnist                    # on the CPU
//! cargo run --release -p candle-mnist --features cuda    # on an NVIDIA GPU; needs nvcc to build Candle's kernels
//! cargo run --release -p candle-mnist -- --prefetch      # four other threads draw the digits in advance
//! kernspan sweep --var BATCH_SIZE=16,32,64 -- target/release/candle-mnist
//! ```
//!
//! On a GPU, steps wait for the digits. `kernspan advise runs/candle-mnist` says so, and advises `--prefetch`.
//!
//! The lines for the profiler are those with `profiler`, `Profiled`, `data` and `#[instrument]`, and one `use` in
//! `model.rs`.

mod digits;
mod model;
mod prefetch;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, ModuleT, Optimizer, VarBuilder, VarMap, loss};
use digits::Digits;
use kernspan::{Activity, Chrome, Html, Perfetto, Profiler, Schedule, Stacks, TensorBoard};
use kernspan_candle::{Profiled, data, kernel_op};
use model::Model;
use prefetch::prefetch;
use std::error::Error;
use tracing::instrument;
use tracing_subscriber::prelude::*;

const STEPS: usize = 150;
/// The number of images in a batch, unless the environment variable `BATCH_SIZE` says another.
const BATCH: usize = 64;
const RUNS: &str = "runs/candle-mnist";

fn main() -> Result<(), Box<dyn Error>> {
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(20).warmup(2).active(10).repeat(2))
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .export(Chrome::to_dir(RUNS))
        .export(Perfetto::to_dir(RUNS))
        .export(Stacks::to_dir(RUNS))
        .export(Html::to_dir(RUNS))
        .export(TensorBoard::to_dir(RUNS))
        .step_on("train_step")
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let device = Device::cuda_if_available(0)?;
    let variables = VarMap::new();
    let model = Model::new(VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);

    let batch = std::env::var("BATCH_SIZE").map_or(Ok(BATCH), |size| size.parse())?;
    let digits = |seed| Digits::new(seed).batches(batch, device.clone());
    let batches: Box<dyn Iterator<Item = _>> = match std::env::args().any(|argument| argument == "--prefetch") {
        true => Box::new(prefetch((1..=4).map(digits))),
        false => Box::new(digits(1)),
    };
    for (step, batch) in data(batches).take(STEPS).enumerate() {
        let loss = train_step(&model, &mut optimizer, batch?)?;
        // Reading the loss waits for the GPU, so it is not done in every step.
        if step % 25 == 0 || step + 1 == STEPS {
            let loss = loss.to_scalar::<f32>()?;
            tracing::info!(counter.loss = loss);
            println!("step {step:3}: loss {loss:.3}");
        }
    }
    let (images, labels) = Digits::new(5).batch(1000, &device)?;
    let right = model.forward_t(&images, false)?.argmax(1)?.eq(&labels)?.to_dtype(DType::U32)?.sum_all()?;
    println!("{} of 1000 digits recognised\n", right.to_scalar::<u32>()?);

    let report = profiler.finish_and_print()?;
    if report.gpu().is_available() {
        println!("{}", report.kernels().group_by(kernel_op).limit(10).fit_terminal());
    }
    Ok(())
}

#[instrument(skip_all)]
fn train_step(
    model: &Model,
    optimizer: &mut impl Optimizer,
    (images, labels): (Tensor, Tensor),
) -> candle_core::Result<Tensor> {
    let logits = model.forward_t(&images, true)?;
    let loss = loss::cross_entropy(&logits, &labels)?;
    optimizer.backward_step(&loss)?;
    // Detached from its graph, so that the graph's memory is freed at the end of the step.
    Ok(loss.detach())
}
