//! A program that runs for long, and can be asked while it runs:
//!
//! ```text
//! cargo run --release --example on_demand --features control,signals
//! kernspan ps
//! kernspan top --pid PID
//! kernspan record --pid PID --steps 10
//! ```
//!
//! It also keeps its last hundred steps, and writes them to `runs/on_demand` after a step that is three times as slow
//! as usual. It ends after a number of seconds, if one is given.

use kernspan::{Chrome, FlightRecorder, Profiler, Schedule, control::Listen};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map(|seconds| seconds.parse()).transpose()?;
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .flight_recorder(FlightRecorder::steps(100).on_slow_step("step_time > 3*median".parse()?))
        .export(Chrome::to_dir("runs/on_demand"))
        .listen(Listen::default())
        .save_on_exit()
        .build()?;
    tracing_subscriber::registry().with(layer).init();
    println!("process {}", std::process::id());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut loss = 2.0;
    for step in 0_u32.. {
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        train_step(step, &mut loss);
        profiler.step();
    }
    profiler.finish_and_print()?;
    Ok(())
}

#[tracing::instrument(skip_all)]
fn train_step(step: u32, loss: &mut f64) {
    tracing::info_span!("load").in_scope(|| work(Duration::from_millis(4)));
    tracing::info_span!("forward").in_scope(|| work(Duration::from_millis(8)));
    tracing::info_span!("backward").in_scope(|| work(Duration::from_millis(if step % 500 == 499 { 90 } else { 15 })));
    tracing::info_span!("optimizer").in_scope(|| work(Duration::from_millis(3)));
    *loss = 0.1 + (*loss - 0.1) * 0.998;
    tracing::info!(counter.loss = *loss, counter.learning_rate = 3e-4);
}

/// Keeps a processor busy.
fn work(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
