//! GPU-bound trainings that compute more slowly, or more, than they need to.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, hits, learn, next, sgd, trained},
    transformer::{Size, Transformer, Ways},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use kernspan_candle::nn;
use tracing::info_span;
use trainings_runner::Variant;

/// A vision transformer whose products are large. Both variants are the same; the fault is a setting of the program.
pub(crate) fn products(setup: &Setup, _: Variant) -> Result<Step> {
    // The values of a patch of 8 × 8 pixels in three colours, and the classes of CIFAR-100.
    const PATCH: usize = 192;
    const CLASSES: usize = 100;
    let size = Size { width: setup.size(1024, 16), heads: setup.size(16, 2), blocks: setup.size(2, 1) };
    let (batch, patches) = (setup.size(64, 2), setup.size(128, 4));
    let (variables, vb) = trained(&setup.device);
    let ways = Ways { fused_norm: false, fused_softmax: false, norm_queries: false, activation: Tensor::relu };
    let embed = nn::linear_no_bias(PATCH, size.width, vb.pp("embed"))?;
    let transformer = Transformer::new(size, ways, &vb)?;
    let head = nn::linear(size.width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, patches, PATCH], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (images, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || {
                let x = transformer.forward(&embed.forward(&images)?)?;
                head.forward(&x.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?)
            };
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// A residual MLP that runs once for the loss and once for the accuracy.
pub(crate) fn forward_twice(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    let (width, batch) = (setup.size(4096, 8), setup.size(8192, 4));
    let (variables, vb) = trained(&setup.device);
    let model = Residual(Mlp::new(&[width, width, width, width, CLASSES], &vb)?);
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let mut right = Tensor::zeros((), DType::F32, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let logits = model.forward(&x)?;
            let predicted = if variant.is_fault() { model.forward(&x)? } else { logits.clone() };
            right = info_span!("accuracy").in_scope(|| &right + hits(&predicted, &labels)?)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

struct Residual(Mlp);

impl Module for Residual {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.head(&self.0.residual_features(x)?)
    }
}

/// Two networks that learn to give the same embedding to both parts of a pair. Both variants are the same; the fault is
/// a setting of the program.
pub(crate) fn towers(setup: &Setup, _: Variant) -> Result<Step> {
    // Scales similarities, as the temperature of CLIP does.
    const SHARPNESS: f64 = 20.0;
    let (width, embedding, pairs) = (setup.size(3072, 8), setup.size(512, 8), setup.size(2048, 4));
    let (variables, vb) = trained(&setup.device);
    let tower = |name: &str| Mlp::new(&[width, width, width, width, embedding], &vb.pp(name));
    let (texts, images) = (tower("texts")?, tower("images")?);
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[2 * pairs, width], pairs, &setup.device)?;
    let own = Tensor::arange(0, pairs as u32, &setup.device)?;
    let embed = |tower: &Mlp, x: &Tensor| {
        let x = tower.forward(x)?;
        x.broadcast_div(&x.sqr()?.sum_keepdim(1)?.sqrt()?)
    };
    Ok(Box::new(move || {
        let (x, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let texts = embed(&texts, &x.narrow(0, 0, pairs)?)?;
            let images = embed(&images, &x.narrow(0, pairs, pairs)?)?;
            let loss = info_span!("loss").in_scope(|| {
                let similarities = (texts.matmul(&images.t()?)? * SHARPNESS)?;
                loss::cross_entropy(&similarities, &own)? + loss::cross_entropy(&similarities.t()?, &own)?
            })?;
            optimizer.backward_step(&loss)
        })
    }))
}
