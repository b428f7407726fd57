//! Trainings that do in many kernels what fewer can do: a gate that is written out, and sets that run one by one.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, learn, next, sgd, trained},
};
use candle_core::{Result, Tensor};
use candle_nn::{Module, VarBuilder};
use kernspan_candle::{
    Traced,
    nn::{self, Linear, linear_no_bias},
};
use tracing::{info_span, instrument};
use trainings_runner::Variant;

/// Few, so that the loss, which is a chain of small operations itself, takes no time.
const CLASSES: usize = 32;

/// SiLU as papers have it.
fn silu_by_hand(x: &Tensor) -> Result<Tensor> {
    x / (x.neg()?.exp()? + 1.0)?
}

/// A gated feed-forward network with a residual connection, as in recent language models.
#[derive(Debug)]
struct Gated {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: fn(&Tensor) -> Result<Tensor>,
}

impl Gated {
    fn new(width: usize, inner: usize, variant: Variant, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            gate: linear_no_bias(width, inner, vb.pp("gate"))?,
            up: linear_no_bias(width, inner, vb.pp("up"))?,
            down: linear_no_bias(inner, width, vb.pp("down"))?,
            activation: if variant.is_fault() { silu_by_hand } else { Tensor::silu },
        })
    }
}

impl Module for Gated {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gate = (self.activation)(&self.gate.forward(x)?)?;
        x + self.down.forward(&(gate * self.up.forward(x)?)?)?
    }
}

/// Gated layers of which all are trained. Candle computes the gradient of SiLU with elementary operations, too.
pub(crate) fn silu(setup: &Setup, variant: Variant) -> Result<Step> {
    let (width, inner, batch) = (setup.size(256, 8), setup.size(2048, 16), setup.size(16384, 4));
    let (variables, vb) = trained(&setup.device);
    let layer = |index: usize| {
        let make = |vb: VarBuilder<'_>| Gated::new(width, inner, variant, &vb);
        Ok(Traced::at(vb.pp(format!("layers.{index}")), make)?.named("layer"))
    };
    let layers: Vec<Traced<Gated>> = (0..setup.size(4, 1)).map(layer).collect::<Result<_>>()?;
    let head = nn::linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || head.forward(&layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?);
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// Classifies sets by the mean of what it makes of their elements.
struct DeepSets {
    elements: Mlp,
    sets: Mlp,
}

impl DeepSets {
    /// Maps (sets, elements, values) to (sets, classes).
    #[instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (sets, elements, _) = x.dims3()?;
        let features = self.elements.features(&x.flatten(0, 1)?, Tensor::relu)?;
        self.sets.forward(&features.reshape((sets, elements, ()))?.mean(1)?)
    }
}

/// A classifier of jets of particles, which are sets. It runs for one set after the other, or for all at once.
pub(crate) fn sets(setup: &Setup, variant: Variant) -> Result<Step> {
    const VALUES: usize = 16;
    let (sets, elements, width) = (setup.size(12, 3), setup.size(1024, 4), setup.size(1024, 8));
    let (variables, vb) = trained(&setup.device);
    let model = DeepSets {
        // The last width is of a head that is not used.
        elements: Mlp::new(&[VALUES, width, width, width, width, 1], &vb.pp("elements"))?,
        sets: Mlp::new(&[width, width, CLASSES], &vb.pp("sets"))?,
    };
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[sets, elements, VALUES], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = if variant.is_fault() {
                let one = |index: usize| model.forward(&x.narrow(0, index, 1)?);
                Tensor::cat(&(0..sets).map(one).collect::<Result<Vec<_>>>()?, 0)?
            } else {
                model.forward(&x)?
            };
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}
