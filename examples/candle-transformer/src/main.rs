//! Two transformers under kernspan, with Candle: a Llama that generates, and a small GPT that trains.
//!
//! ```sh
//! cargo run --release -p candle-transformer                  # a Llama of candle-transformers generates tokens
//! cargo run --release -p candle-transformer -- generate --prompts 8 --prompt-tokens 64 --tokens 64 --active 64
//! cargo run --release -p candle-transformer -- train         # a GPT of our own learns to count
//! cargo run --release -p candle-transformer -- train --steps 120
//! ```
//!
//! With `--features cuda` both run on an NVIDIA GPU, at a larger size; nvcc has to be there to build Candle's kernels. Weights are random, so
//! nothing is downloaded: what is computed makes no sense, and takes as long as if it did.
//!
//! `--active` says how many steps are recorded. For `generate`, each prompt and each token after it is a step.
//!
//! `generate` says how long tokens took while they were recorded and while they were not. The recorded ones follow one another, so what
//! else the machine did meanwhile is in the difference, too: believe it when it is there in several runs.

mod arguments;
mod attention;
mod generate;
mod gpt;
mod latencies;
mod llama;
mod random;
mod text;
mod train;

use arguments::Arguments;
use kernspan::{Activity, Chrome, Perfetto, Profiler, ProfilerBuilder, Report, Stacks, TensorBoard};
use kernspan_candle::kernel_op;
use std::{error::Error, process::ExitCode};

const RUNS: &str = "runs/candle-transformer";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    match arguments.command().unwrap_or("generate") {
        "generate" => generate::run(arguments),
        "train" => train::run(arguments),
        other => Err(format!("no command `{other}`: there are `generate` and `train`").into()),
    }
}

/// Where the time went, and on a GPU, by what operations.
fn print(report: &Report) {
    println!("{report}");
    if report.gpu().is_available() {
        println!("{}", report.kernels().group_by(kernel_op).limit(10));
    }
}

/// What is recorded, and where to; when, the commands say.
fn profiler() -> ProfilerBuilder {
    Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .export(Chrome::to_dir(RUNS))
        .export(Perfetto::to_dir(RUNS))
        .export(Stacks::to_dir(RUNS))
        .export(TensorBoard::to_dir(RUNS))
}
