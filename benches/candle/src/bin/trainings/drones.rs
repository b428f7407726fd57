//! A policy that learns to fly drones through a simulation, which has a gradient.

use crate::{
    case::{Setup, Step},
    host_cases::batch,
    models::{Mlp, adamw, batches, next, trained},
};
use candle_core::{Result, Tensor};
use candle_nn::{Module, Optimizer};
use tracing::info_span;
use trainings_runner::Variant;

/// The values of a state: place and velocity.
const STATE: usize = 6;
/// The moves that are simulated in a step.
const MOVES: usize = 12;
/// The steps between two reads. The fiftieth step may be a recorded one, the sixty-fourth is not.
const READ_EVERY: usize = 64;

/// A policy whose host reads cost and speed after each move, or the GPU adds them up.
pub(crate) fn flown(setup: &Setup, variant: Variant) -> Result<Step> {
    flown_with_batch(setup, setup.size(setup.amount, 2), variant)
}

/// Returns the batch with which the GPU computes for as long as the host launches, so that waiting costs most.
pub(crate) fn drones(setup: &Setup) -> Result<usize> {
    batch(setup, 16384, 1.0, |batch| flown_with_batch(setup, batch, Variant::Fixed))
}

fn flown_with_batch(setup: &Setup, batch: usize, variant: Variant) -> Result<Step> {
    const SECONDS: f64 = 0.1;
    let width = setup.size(1024, 8);
    let (variables, vb) = trained(&setup.device);
    let policy = Mlp::new(&[STATE, width, width, 3], &vb)?;
    let mut optimizer = adamw(&variables)?;
    let mut batches = batches(&[batch, STATE], 1, &setup.device)?;
    let mut log = Log { is_read: variant.is_fault(), values: Vec::new(), sums: [None, None], steps: 0 };
    Ok(Box::new(move || {
        let (state, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let mut place = state.narrow(1, 0, 3)?.contiguous()?;
            let mut velocity = state.narrow(1, 3, 3)?.contiguous()?;
            let mut total: Option<Tensor> = None;
            for _ in 0..MOVES {
                let thrust = policy.forward(&Tensor::cat(&[&place, &velocity], 1)?)?.tanh()?;
                let simulate = info_span!("simulate").entered();
                velocity = ((velocity * 0.98)? + (&thrust * SECONDS)?)?;
                log.add(0, &velocity.sqr()?.mean_all()?)?;
                place = (place + (&velocity * SECONDS)?)?;
                let cost = (place.sqr()?.mean_all()? + (thrust.sqr()?.mean_all()? * 0.01)?)?;
                log.add(1, &cost)?;
                drop(simulate);
                total = Some(total.map_or(Ok(cost.clone()), |total| total + &cost)?);
            }
            log.end_step()?;
            let Some(total) = total else { candle_core::bail!("no moves") };
            optimizer.backward_step(&total)
        })
    }))
}

/// Numbers of each move, which are read at once, or added up.
struct Log {
    is_read: bool,
    values: Vec<f32>,
    sums: [Option<Tensor>; 2],
    steps: usize,
}

impl Log {
    fn add(&mut self, index: usize, value: &Tensor) -> Result<()> {
        if self.is_read {
            self.values.push(value.to_scalar()?);
            return Ok(());
        }
        let value = value.detach();
        self.sums[index] = Some(self.sums[index].take().map_or(Ok(value.clone()), |sum| sum + &value)?);
        Ok(())
    }

    fn end_step(&mut self) -> Result<()> {
        self.steps += 1;
        if self.is_read || !self.steps.is_multiple_of(READ_EVERY) {
            return Ok(());
        }
        for sum in self.sums.iter_mut().filter_map(Option::take) {
            self.values.push(sum.to_scalar()?);
        }
        Ok(())
    }
}
