//! Settings of a profiler from a file, the environment and the command line, in this order.
//!
//! `cargo run --features clap --example overrides -- --config train.yaml --profiling.active 2`

use clap::Parser;
use kernspan::config::{ProfilingArgs, Settings};
use std::path::PathBuf;
use tracing_subscriber::prelude::*;

/// Trains nothing, and records it
#[derive(Parser)]
struct Args {
    /// The number of steps
    #[arg(long, default_value_t = 20)]
    steps: u32,
    /// A file of the training, which may have a section `profiling`
    #[arg(long)]
    config: Option<PathBuf>,
    #[command(flatten)]
    profiling: ProfilingArgs,
}

fn main() -> Result<(), kernspan::Error> {
    let args = Args::parse();
    let settings = match &args.config {
        Some(file) => Settings::new().with_file(file)?,
        None => Settings::new(),
    };
    let settings = settings.with_env()?.with(args.profiling.into(), "command line")?;
    // Code has the last word: settings of the builder override all others.
    let (layer, profiler) = settings.builder()?.metadata("example", "overrides").build()?;
    tracing_subscriber::registry().with(layer).init();
    for step in 0..args.steps {
        train_step(step);
        profiler.step();
    }
    profiler.finish_and_print()?;
    Ok(())
}

#[tracing::instrument(skip_all)]
fn train_step(step: u32) {
    tracing::info!(counter.loss = 1.0 / f64::from(step + 1));
}
