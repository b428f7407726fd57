//! Measured rounds of steps.

use crate::{Failure, trainer::Trainer};
use std::time::Instant;

/// The time of a step in each of several rounds.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// Nanoseconds of a step, of each round in the order in which they ran.
    pub(crate) nanoseconds: [u64; Self::ROUNDS],
}

impl Rounds {
    const ROUNDS: usize = 3;
    /// Steps before the first round.
    const WARMUP: u64 = 50;

    /// Returns the number of all steps that are run if a round has `steps`.
    pub(crate) fn all_steps(steps: u64) -> u64 {
        Self::WARMUP + Self::ROUNDS as u64 * steps
    }

    /// Runs the rounds. Each begins and ends with an idle GPU, so that its time is that of all of its work.
    pub(crate) fn measure(trainer: &mut Trainer, steps: u64) -> Result<Self, Failure> {
        (0..Self::WARMUP).try_for_each(|step| trainer.train_step(step))?;
        let mut nanoseconds = [0; Self::ROUNDS];
        for (round, nanoseconds) in nanoseconds.iter_mut().enumerate() {
            let first = Self::WARMUP + round as u64 * steps;
            trainer.synchronize()?;
            let start = Instant::now();
            (first..first + steps).try_for_each(|step| trainer.train_step(step))?;
            trainer.synchronize()?;
            *nanoseconds = start.elapsed().as_nanos() as u64 / steps;
        }
        Ok(Self { nanoseconds })
    }

    /// Returns the median of the rounds.
    pub(crate) fn median(&self) -> u64 {
        let mut sorted = self.nanoseconds;
        sorted.sort_unstable();
        sorted[Self::ROUNDS / 2]
    }
}
