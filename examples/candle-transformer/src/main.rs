//! Profiles two transformers in Candle: a Llama that generates, and a small GPT that trains.
//!
//! ```sh
//! cargo run --release -p candle-transformer                  # a Llama generates tokens
//! cargo run --release -p candle-transformer -- generate --prompts 8 --prompt-tokens 64 --tokens 64 --active 64
//! cargo run --release -p candle-transformer -- train         # a small GPT learns to count
//! cargo run --release -p candle-transformer -- train --steps 120
//! cargo run --release -p candle-transformer --features cuda -- train --tf32 1    # matrix products on tensor cores
//! cargo run --release -p candle-transformer --features samples -- train          # with call stacks, on Linux
//! ```
//!
//! Call stacks have lines with `CARGO_PROFILE_RELEASE_DEBUG=line-tables-only`.
//!
//! With `--features cuda` both run on an NVIDIA GPU, at a larger size; nvcc is needed to build Candle's kernels. The
//! Llama's weights are random, so nothing is downloaded; its text makes no sense, but takes the usual time.
//!
//! `--active` is the number of recorded steps. For `generate`, each prompt and each generated token is a step.
//!
//! `generate` prints the latencies of tokens that were recorded and of those that were not. The recorded tokens follow
//! one another, so the difference also depends on other load of the machine at that time; compare several runs.

mod arguments;
mod attention;
mod generate;
mod gpt;
mod latencies;
mod llama;
mod profiling;
mod random;
mod text;
mod train;

use arguments::Arguments;
use std::{error::Error, process::ExitCode};

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
