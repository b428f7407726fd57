//! The time of a step without a profiler.

use crate::case::{Case, Framework, Setup, Step, Variant};
use std::time::Instant;

/// The number of rounds, and the seconds that a round of one variant takes.
const ROUNDS: usize = 5;
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

/// Times both variants in turns, because the speed of the machine changes from second to second.
pub(crate) fn time<F: Framework>(case: &Case<F>, setup: &Setup<F>) -> Result<[Timed; 2], F::Error> {
    let mut timings = [Timing::new(case, setup, Variant::Fault)?, Timing::new(case, setup, Variant::Fixed)?];
    for _ in 0..if setup.tiny { 1 } else { ROUNDS } {
        for timing in &mut timings {
            timing.round(case, setup)?;
        }
    }
    Ok(timings.map(|timing| timing.result(case)))
}

/// A training that is timed.
struct Timing<F: Framework> {
    variant: Variant,
    step: Step<F>,
    steps: usize,
    means: Vec<f64>,
}

impl<F: Framework> Timing<F> {
    /// Makes a training, and runs steps that are not timed.
    fn new(case: &Case<F>, setup: &Setup<F>, variant: Variant) -> Result<Self, F::Error> {
        F::configure(case, variant);
        let start = Instant::now();
        let mut step = (case.make)(setup, variant)?;
        let steps = if setup.tiny {
            2
        } else {
            mean(setup, &mut step, F::WARM_UP)?;
            ((ROUND * 1e6 / mean(setup, &mut step, STEPS[0])?) as usize).clamp(STEPS[0], STEPS[1])
        };
        eprintln!("{}, {}: warm after {:.1?}", case.name, variant.name(), start.elapsed());
        Ok(Self { variant, step, steps, means: Vec::new() })
    }

    fn round(&mut self, case: &Case<F>, setup: &Setup<F>) -> Result<(), F::Error> {
        F::configure(case, self.variant);
        self.means.push(mean(setup, &mut self.step, self.steps)?);
        Ok(())
    }

    fn result(mut self, case: &Case<F>) -> Timed {
        self.means.sort_by(f64::total_cmp);
        let timed = Timed { step_us: self.means[self.means.len() / 2], steps: self.steps };
        eprintln!("{}, {}: {:.1} µs a step", case.name, self.variant.name(), timed.step_us);
        timed
    }
}

/// Returns the microseconds per step. As in a training, nothing waits for the GPU until the last step.
///
/// # Errors
///
/// If a step fails.
pub fn mean<F: Framework>(setup: &Setup<F>, step: &mut Step<F>, count: usize) -> Result<f64, F::Error> {
    F::synchronize(&setup.device)?;
    let start = Instant::now();
    for _ in 0..count {
        step()?;
    }
    F::synchronize(&setup.device)?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / count as f64)
}
