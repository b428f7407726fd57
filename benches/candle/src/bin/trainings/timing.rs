//! The time of a step without a profiler.

use crate::case::{Setup, Step};
use candle_core::Result;
use std::time::Instant;

/// Steps that run before anything is timed. The first loads kernels; later ones fill the GPU's memory pool and let it
/// raise its clock.
const WARM_UP: usize = 20;
/// The seconds that a round takes: five rounds of both variants of all cases take three and a half minutes.
const ROUND: f64 = 1.0;
/// The fewest and most steps of a round.
const STEPS: [usize; 2] = [30, 4000];

/// The time of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timed {
    /// The median of the means of the rounds, in microseconds.
    pub(crate) step_us: f64,
    /// The number of steps of a round.
    pub(crate) steps: usize,
}

/// Returns the number of rounds.
pub(crate) fn rounds(setup: &Setup) -> usize {
    if setup.tiny { 1 } else { 5 }
}

/// Runs steps that are not timed, and returns the number of steps of a round.
pub(crate) fn warm_up(setup: &Setup, step: &mut Step) -> Result<usize> {
    if setup.tiny {
        mean(setup, step, 2)?;
        return Ok(2);
    }
    mean(setup, step, WARM_UP)?;
    let step_us = mean(setup, step, WARM_UP)?;
    Ok(((ROUND * 1e6 / step_us) as usize).clamp(STEPS[0], STEPS[1]))
}

/// Returns the microseconds per step. As in a training, nothing waits for the GPU until the last step.
pub(crate) fn mean(setup: &Setup, step: &mut Step, count: usize) -> Result<f64> {
    setup.device.synchronize()?;
    let start = Instant::now();
    for _ in 0..count {
        step()?;
    }
    setup.device.synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}
