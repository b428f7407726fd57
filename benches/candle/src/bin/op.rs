//! Measures the cost of an `Op`, without a GPU, in nanoseconds per run.
//!
//! `op [ROUNDS]` runs a function that only clones a tensor's handle: alone, in an `Op` without a subscriber, in one
//! while the schedule waits, and in one that is recorded. The output is the least time of the rounds.

use candle_bench::least;
use candle_core::{DType, Device, Result, Tensor};
use kernspan::{Profiler, Schedule};
use kernspan_candle::Op;
use std::{hint::black_box, time::Instant};
use tracing_subscriber::prelude::*;

const RUNS: u32 = 200;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(2000), |text| text.parse::<usize>())?;
    let x = Tensor::zeros((64, 512), DType::F32, &Device::Cpu)?;
    let new_op = || Op::new("op").flops(|_, output| output.elem_count() as u64);
    let disabled = new_op();
    let disabled = measure(rounds, || disabled.run(&[&x], || Ok(x.clone())))?;

    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).build()?;
    tracing_subscriber::registry().with(layer).init();
    let op = new_op();
    let bare = measure(rounds, || Ok(x.clone()))?;
    let waiting = measure(rounds, || op.run(&[&x], || Ok(x.clone())))?;
    // Each round is a window of its own, so that the thread's queue never fills up.
    let windows = (0..rounds.min(200)).map(|_| {
        profiler.start();
        let time = measure(1, || op.run(&[&x], || Ok(x.clone())));
        profiler.stop();
        time
    });
    let recording = least(&windows.collect::<Result<Vec<_>>>()?);
    println!(
        "ns a run: {bare:.0} alone, {disabled:.0} without a subscriber, {waiting:.0} waiting, {recording:.0} recording"
    );
    let report = profiler.finish()?;
    assert!(report.losses().is_empty(), "{}", report.losses());
    Ok(())
}

/// Returns the nanoseconds per run of the fastest round.
fn measure(rounds: usize, mut run: impl FnMut() -> Result<Tensor>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        for _ in 0..RUNS {
            black_box(run()?);
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(RUNS));
    }
    Ok(least(&times))
}
