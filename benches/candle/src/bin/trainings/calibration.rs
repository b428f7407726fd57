//! Finds out how much the host has to do so that the GPU waits for it.

use crate::case::{Setup, Step};
use candle_core::Result;
use std::time::Instant;

/// Returns how many times the host has to do some work so that it takes this many times as long as a step.
pub(crate) fn repetitions(setup: &Setup, ratio: f64, mut step: Step, mut work: impl FnMut()) -> Result<usize> {
    const MEASURED: u32 = 8;
    trainings_runner::mean(setup, &mut step, 20)?;
    let step_us = trainings_runner::mean(setup, &mut step, 30)?;
    let start = Instant::now();
    (0..MEASURED).for_each(|_| work());
    let work_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(MEASURED);
    Ok((ratio * step_us / work_us).round().max(1.0) as usize)
}
