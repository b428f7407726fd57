//! Finds out how much the host has to do so that the GPU waits for it.

use crate::cases::{Burn, Result, Setup, Step};
use std::time::Instant;
use trainings_runner::Framework;

/// Returns how many times the host has to do some work so that it takes this many times as long as a step.
pub(crate) fn repetitions(setup: &Setup, ratio: f64, mut step: Step, mut work: impl FnMut()) -> Result<f64> {
    const MEASURED: u32 = 8;
    trainings_runner::mean(setup, &mut step, Burn::WARM_UP)?;
    let step_us = trainings_runner::mean(setup, &mut step, 30)?;
    let start = Instant::now();
    (0..MEASURED).for_each(|_| work());
    let work_us = start.elapsed().as_secs_f64() * 1e6 / f64::from(MEASURED);
    Ok(ratio * step_us / work_us)
}
