use crate::{
    arguments::Arguments,
    latencies::{Kind, Latencies},
    llama::Model,
    profiling::{finish, profiler},
    random::Random,
};
use candle_core::Device;
use kernspan::Schedule;
use std::{error::Error, time::Instant};
use tracing_subscriber::prelude::*;

const WAIT: usize = 2;
const WARMUP: usize = 2;

/// Generates tokens for several prompts, one after the other. Each forward pass is a step.
pub(crate) fn run(mut arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let device = Device::cuda_if_available(0)?;
    let prompts = arguments.take("--prompts", 8)?;
    let prompt_tokens = arguments.take("--prompt-tokens", if device.is_cpu() { 64 } else { 512 })?;
    let tokens = arguments.take("--tokens", 64)?;
    // As many steps as a prompt has, so that one of them is a prefill.
    let active = arguments.take("--active", tokens)?;
    arguments.finish()?;
    if prompts.saturating_mul(tokens) <= WAIT + WARMUP {
        return Err(
            format!("--prompts times --tokens has to be more than {}, or nothing is recorded", WAIT + WARMUP).into()
        );
    }
    if prompt_tokens.saturating_add(tokens) > Model::MAX_TOKENS {
        return Err(format!("--prompt-tokens and --tokens may be {} together", Model::MAX_TOKENS).into());
    }

    let schedule = Schedule::new().wait(WAIT as u64).warmup(WARMUP as u64).active(active as u64).repeat(1);
    let (layer, profiler) = profiler().schedule(schedule).build()?;
    tracing_subscriber::registry().with(layer).init();

    // The model's spans are created with it, so the subscriber has to be set before.
    let model = Model::new(&device)?;
    let mut random = Random::new(1);
    let mut new_prompt = || (0..prompt_tokens).map(|_| random.below(model.vocabulary())).collect::<Vec<_>>();

    // On a GPU, kernels are loaded at their first launch, which must not be part of a latency.
    let mut prompt = model.prompt();
    let token = model.next(&new_prompt(), &mut prompt)?;
    model.next(&[token], &mut prompt)?;

    let mut latencies = Latencies::default();
    for _ in 0..prompts {
        let (mut prompt, mut input, mut kind) = (model.prompt(), new_prompt(), Kind::Prefill);
        for _ in 0..tokens {
            let (phase, start) = (profiler.phase(), Instant::now());
            let token = model.next(&input, &mut prompt)?;
            latencies.add(kind, phase, input.len(), start.elapsed());
            profiler.step();
            (input, kind) = (vec![token], Kind::Decode);
        }
    }
    println!("{prompts} prompts of {prompt_tokens} tokens, {tokens} generated for each\n\n{latencies}\n");
    finish(profiler)?;
    Ok(())
}
