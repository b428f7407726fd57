//! Trainings that have a loop in each step: over the iterations of a solver, or over the members of an ensemble.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, learn, next, sgd, trained},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Init, Module, Optimizer, VarBuilder, loss};
use kernspan_candle::nn;
use tracing::{info_span, instrument};
use trainings_runner::Variant;

/// A deep equilibrium model: its features are where a layer no longer changes them. The host reads in each iteration
/// how much they change, or the GPU adds that up, and as many iterations are made as always are.
pub(crate) fn equilibrium(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    const ITERATIONS: usize = 16;
    // The sum of the squares of changes, which falls to about a sixth in each iteration, from 4e5 in the first. So the
    // iterations end before it is that low, and both variants make as many.
    const SETTLED: f32 = 1e-9;
    // The fiftieth step may be a recorded one, the sixty-fourth is not.
    const READ_EVERY: usize = 64;
    let (width, batch) = (setup.size(1024, 8), setup.size(2048, 4));
    let (variables, vb) = trained(&setup.device);
    let inject = nn::linear(width, width, vb.pp("inject"))?;
    let cell = nn::linear_no_bias(width, width, vb.pp("cell"))?;
    let head = nn::linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let start = Tensor::zeros((batch, width), DType::F32, &setup.device)?;
    let mut unsettled = Tensor::zeros((), DType::F32, &setup.device)?;
    let (mut step, mut log) = (0, Vec::new());
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            step += 1;
            let injected = info_span!("inject").in_scope(|| inject.forward(&x))?;
            let advance = |z: &Tensor, injected: &Tensor| (cell.forward(z)? + injected)?.relu();
            let settled = info_span!("settle").in_scope(|| {
                // Only the last iteration has a gradient.
                let (injected, mut z) = (injected.detach(), start.clone());
                for _ in 0..ITERATIONS {
                    let new = advance(&z, &injected)?.detach();
                    let change = (&new - &z)?.sqr()?.sum_all()?;
                    z = new;
                    if variant.is_fault() {
                        if change.to_scalar::<f32>()? < SETTLED {
                            break;
                        }
                    } else {
                        unsettled = (&unsettled + change)?;
                    }
                }
                Ok::<_, candle_core::Error>(z)
            })?;
            if !variant.is_fault() && step % READ_EVERY == 0 {
                log.push(unsettled.to_scalar::<f32>()?);
            }
            let features = info_span!("features").in_scope(|| advance(&settled, &injected))?;
            let logits = head.forward(&features)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// Returns the loss of samples and labels, both of which have a dimension for the members.
type Loss = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor>>;

/// An ensemble of MLPs, each of which has its own samples. They run one after the other, or as one with a dimension
/// more.
pub(crate) fn ensemble(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    let (members, batch, width) = (setup.size(8, 3), setup.size(1024, 4), setup.size(1024, 8));
    let widths = [width, width, width, width, CLASSES];
    let (variables, vb) = trained(&setup.device);
    let ensemble_loss: Loss = if variant.is_fault() {
        let member = |index: usize| Mlp::new(&widths, &vb.pp(format!("members.{index}")));
        let models = (0..members).map(member).collect::<Result<Vec<_>>>()?;
        Box::new(move |x, labels| {
            let loss = |index: usize| {
                let logits = models[index].forward(&x.get(index)?)?;
                info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &labels.get(index)?))
            };
            (1..members).try_fold(loss(0)?, |sum, index| sum + loss(index)?)? / members as f64
        })
    } else {
        let models = Members::new(members, &widths, &vb)?;
        Box::new(move |x, labels| {
            let logits = models.forward(x)?.flatten(0, 1)?;
            info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &labels.flatten_all()?))
        })
    };
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[members * batch, width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let loss = ensemble_loss(&x.reshape((members, batch, width))?, &labels.reshape((members, batch))?)?;
            optimizer.backward_step(&loss)
        })
    }))
}

/// MLPs of the same size, whose weights are one tensor for each layer.
struct Members(Vec<Tensor>);

impl Members {
    fn new(members: usize, widths: &[usize], vb: &VarBuilder<'_>) -> Result<Self> {
        let layer = |(index, pair): (usize, &[usize])| {
            let stdev = (pair[0] as f64).sqrt().recip();
            let shape = (members, pair[0], pair[1]);
            vb.get_with_hints(shape, &format!("layers.{index}.weight"), Init::Randn { mean: 0.0, stdev })
        };
        Ok(Self(widths.windows(2).enumerate().map(layer).collect::<Result<_>>()?))
    }
}

impl Module for Members {
    /// Maps (members, batch, inputs) to (members, batch, outputs).
    #[instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [inner @ .., head] = &self.0[..] else { candle_core::bail!("no layers") };
        inner.iter().try_fold(x.clone(), |x, layer| x.matmul(layer)?.relu())?.matmul(head)
    }
}
