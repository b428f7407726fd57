//! Trainings that wait for the GPU to read numbers.

use crate::{
    case::{Setup, Step},
    host_cases::{Metrics, batch, square_norm},
    models::{Mlp, adamw, batches, next, trained},
};
use candle_core::{DType, Result, Tensor, backprop::GradStore};
use candle_nn::{Module, Optimizer, VarBuilder, VarMap, loss};
use kernspan_candle::nn::{Linear, linear};
use tracing::info_span;
use trainings_runner::Variant;

/// Linear layers with biases and a residual connection around each, and a head.
struct Tower {
    layers: Vec<Linear>,
    head: Linear,
}

impl Tower {
    fn new(width: usize, layers: usize, classes: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        let layer = |index: usize| linear(width, width, vb.pp(format!("layers.{index}")));
        Ok(Self {
            layers: (0..layers).map(layer).collect::<Result<_>>()?,
            head: linear(width, classes, vb.pp("head"))?,
        })
    }
}

impl Module for Tower {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.layers.iter().try_fold(x.clone(), |x, layer| &x + layer.forward(&x)?.relu()?)?;
        self.head.forward(&x)
    }
}

/// A residual MLP whose gradients are clipped by their norm: the host reads the norm and decides, or the GPU does. The
/// kernels of the optimizer are short, so that the host cannot launch them in time once the GPU has caught up with it.
pub(crate) fn clipped(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    let (width, batch, layers) = (setup.size(512, 8), setup.size(16384, 4), setup.size(16, 2));
    let (variables, vb) = trained(&setup.device);
    let model = Tower::new(width, layers, CLASSES, &vb)?;
    let mut optimizer = adamw(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let highest = Tensor::new(1_f32, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = model.forward(&x)?;
            let loss = info_span!("loss").in_scope(|| loss::cross_entropy(&logits, &labels))?;
            let mut gradients = kernspan_candle::backward(&loss)?;
            info_span!("clip_gradients").in_scope(|| clip(&variables, &mut gradients, &highest, variant))?;
            optimizer.step(&gradients)
        })
    }))
}

/// Scales a gradient.
type Scale = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// Scales gradients to a norm of one if theirs is higher.
fn clip(variables: &VarMap, gradients: &mut GradStore, highest: &Tensor, variant: Variant) -> Result<()> {
    let norm = square_norm(variables, gradients)?.sqrt()?;
    let scale: Scale = if variant.is_fault() {
        let scale = f64::from(norm.to_scalar::<f32>()?).recip().min(1.0);
        Box::new(move |gradient| gradient * scale)
    } else {
        let scale = highest.div(&norm)?.minimum(highest)?;
        Box::new(move |gradient| gradient.broadcast_mul(&scale))
    };
    for variable in variables.all_vars() {
        if let Some(gradient) = gradients.remove(&variable) {
            gradients.insert(&variable, scale(&gradient)?);
        }
    }
    Ok(())
}

/// The size of the random input of a generator, and of what it generates.
const NOISE: usize = 128;
const PIXELS: usize = 784;

/// A GAN that reads its losses and the scores of real and generated samples in each step, or sums them up on the GPU.
pub(crate) fn scores(setup: &Setup, variant: Variant) -> Result<Step> {
    scores_with_batch(setup, setup.size(setup.amount, 2), variant)
}

/// Returns the batch with which the GPU computes for as long as the host launches, so that waiting costs most.
pub(crate) fn batch_of_scores(setup: &Setup) -> Result<usize> {
    batch(setup, 16384, 1.0, |batch| scores_with_batch(setup, batch, Variant::Fixed))
}

fn scores_with_batch(setup: &Setup, batch: usize, variant: Variant) -> Result<Step> {
    let (width, device) = (setup.size(1024, 8), setup.device.clone());
    let ((of_generator, generator), (of_critic, critic)) = (trained(&device), trained(&device));
    let generator = Mlp::new(&[NOISE, width, width, width, PIXELS], &generator)?;
    let critic = Mlp::new(&[PIXELS, width, width, width, 1], &critic)?;
    let (mut generator_optimizer, mut critic_optimizer) = (adamw(&of_generator)?, adamw(&of_critic)?);
    let mut batches = batches(&[batch, PIXELS], 2, &device)?;
    let (ones, zeros) =
        (Tensor::ones((batch, 1), DType::F32, &device)?, Tensor::zeros((batch, 1), DType::F32, &device)?);
    let mut metrics = Metrics::new(variant.is_fault());
    let bce = |scores: &Tensor, wanted: &Tensor| {
        // As `binary_cross_entropy_with_logit`, but by fewer operations.
        let wrong = ((wanted * -2.0)? + 1.0)?;
        ((scores * wrong)?.exp()? + 1.0)?.log()?.mean_all()
    };
    Ok(Box::new(move || {
        let (real, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let noise = || Tensor::randn(0_f32, 1.0, (batch, NOISE), &device);
            info_span!("critic").in_scope(|| {
                let scores = critic.forward(&real)?;
                metrics.log(0, &scores.mean_all()?)?;
                let loss_of_real = bce(&scores, &ones)?;
                let generated = generator.forward(&noise()?)?.detach();
                let scores = critic.forward(&generated)?;
                metrics.log(1, &scores.mean_all()?)?;
                let loss = (loss_of_real + bce(&scores, &zeros)?)?;
                metrics.log(2, &loss)?;
                critic_optimizer.backward_step(&loss)
            })?;
            info_span!("generator").in_scope(|| {
                let scores = critic.forward(&generator.forward(&noise()?)?)?;
                let loss = bce(&scores, &ones)?;
                metrics.log(3, &loss)?;
                generator_optimizer.backward_step(&loss)
            })
        })
    }))
}
