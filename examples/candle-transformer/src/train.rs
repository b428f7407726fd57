use crate::{
    arguments::Arguments,
    gpt::{Gpt, Size},
    profiling::{finish, profiler},
    text::Text,
};
use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap, loss};
use kernspan::Schedule;
use kernspan_candle::{Parameters, Profiled, data};
use std::error::Error;
use tracing::instrument;
use tracing_subscriber::prelude::*;

const WAIT: usize = 20;
const WARMUP: usize = 2;

/// Trains a model that learns to count, byte by byte.
pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let device = Device::cuda_if_available(0)?;
    let (size, batch) = if device.is_cpu() {
        // No tensor has 65,536 elements. From that size on, Candle distributes work to threads, which spin while they
        // wait.
        (Size { width: 64, heads: 4, blocks: 2, context: 28 }, 8)
    } else {
        (Size { width: 512, heads: 8, blocks: 8, context: 256 }, 32)
    };
    let steps = arguments.take("--steps", 200)?;
    let active = arguments.take("--active", 10)?;
    // Without this, Candle multiplies matrices of f32 without tensor cores.
    candle_core::cuda::set_gemm_reduced_precision_f32(arguments.take("--tf32", 0)? > 0);
    arguments.finish()?;
    if steps <= WAIT + WARMUP {
        return Err(format!("--steps has to be more than {}, or nothing is recorded", WAIT + WARMUP).into());
    }

    let (layer, profiler) = profiler()
        .schedule(Schedule::new().wait(WAIT as u64).warmup(WARMUP as u64).active(active as u64).repeat(1))
        .step_on("train_step")
        .build()?;
    tracing_subscriber::registry().with(layer).init();

    let variables = VarMap::new();
    let model = Gpt::new(size, VarBuilder::from_varmap(&variables, DType::F32, &device))?;
    let variables = variables.all_vars();
    println!("{} parameters", Parameters::of(variables.iter().map(Var::as_tensor)).count);
    let mut optimizer = Profiled::new(AdamW::new_lr(variables, if device.is_cpu() { 2e-3 } else { 5e-4 })?);

    let mut losses = Vec::new();
    for (step, batch) in data(Text::new(1).batches(batch, size.context, &device)).take(steps).enumerate() {
        let loss = train_step(&model, &mut optimizer, batch?)?;
        // Reading the loss waits for the GPU, so it is not done in every step.
        if step % 20 == 0 || step + 1 == steps {
            let loss = loss.to_scalar::<f32>()?;
            tracing::info!(counter.loss = loss);
            println!("step {step:3}: loss {loss:.3}");
            losses.push(loss);
        }
    }
    println!("completion: {}\n", model.complete("611 612 613 ", 12, &device)?);
    finish(profiler)?;

    let (first, last) = (losses.first().copied().unwrap_or(f32::NAN), losses.last().copied().unwrap_or(f32::NAN));
    // Written so that NaN is an error, too.
    if last < first { Ok(()) } else { Err(format!("the loss did not fall: {first} at first, {last} at last").into()) }
}

#[instrument(skip_all)]
fn train_step(
    model: &Gpt,
    optimizer: &mut impl Optimizer,
    (bytes, next): (Tensor, Tensor),
) -> candle_core::Result<Tensor> {
    let logits = model.forward(&bytes)?;
    let loss = loss::cross_entropy(&logits.flatten_to(1)?, &next.flatten_all()?)?;
    optimizer.backward_step(&loss)?;
    // Detached from its graph, so that the graph's memory is freed at the end of the step.
    Ok(loss.detach())
}
