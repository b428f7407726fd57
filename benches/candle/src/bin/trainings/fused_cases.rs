//! Trainings with element-wise operations in a row, where Candle has one that does the same.

use crate::{
    case::{Setup, Step},
    models::{Mlp, batches, frozen, learn, next, sgd, trained},
    transformer::{Size, Transformer, Ways},
};
use candle_core::{DType, Result, Tensor};
use candle_nn::{Module, Optimizer, loss};
use kernspan_candle::nn;
use std::f64::consts::PI;
use tracing::info_span;
use trainings_runner::Variant;

/// Few, so that the loss, which is a chain of small operations itself, takes no time.
const CLASSES: usize = 64;

/// GELU as papers have it.
fn gelu_by_hand(x: &Tensor) -> Result<Tensor> {
    let cube = ((x * x)? * x)?;
    let inner = ((x + (cube * 0.044715)?)? * (2.0 / PI).sqrt())?;
    (x * 0.5)? * (inner.tanh()? + 1.0)?
}

fn activation(variant: Variant) -> fn(&Tensor) -> Result<Tensor> {
    if variant.is_fault() { gelu_by_hand } else { Tensor::gelu }
}

/// An MLP of which all layers are trained. Candle computes the gradient of GELU with elementary operations, too.
pub(crate) fn gelu(setup: &Setup, variant: Variant) -> Result<Step> {
    let (width, batch) = (setup.size(3072, 8), setup.size(8192, 4));
    let (variables, vb) = trained(&setup.device);
    let model = Mlp::new(&[width, width, width, width, CLASSES], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let activation = activation(variant);
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || model.head(&model.features(&x, activation)?);
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// An MLP of which only the head is trained, so that the rest has no backward pass.
pub(crate) fn frozen_gelu(setup: &Setup, variant: Variant) -> Result<Step> {
    let (width, batch) = (setup.size(2048, 8), setup.size(16384, 4));
    let backbone = Mlp::new(&[width, width, width, width, width, width, 1], &frozen(DType::F32, &setup.device))?;
    let (variables, vb) = trained(&setup.device);
    let head = nn::linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, width], CLASSES, &setup.device)?;
    let activation = activation(variant);
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || head.forward(&backbone.features(&x, activation)?);
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// A transformer of which only the head is trained. The fused norm has no gradient.
pub(crate) fn rms_norm(setup: &Setup, variant: Variant) -> Result<Step> {
    let size = Size { width: setup.size(768, 16), heads: setup.size(12, 2), blocks: setup.size(3, 1) };
    let (batch, length) = (setup.size(128, 2), setup.size(256, 4));
    let ways =
        Ways { fused_norm: !variant.is_fault(), fused_softmax: true, norm_queries: true, activation: Tensor::gelu };
    // Candle's products of bf16 matrices need a GPU.
    let dtype = if setup.device.is_cpu() { DType::F32 } else { DType::BF16 };
    let backbone = Transformer::new(size, ways, &frozen(dtype, &setup.device))?;
    let (variables, vb) = trained(&setup.device);
    let head = nn::linear(size.width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, length, size.width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let forward = || {
                let features = backbone.forward(&x.to_dtype(dtype)?)?;
                let first = features.narrow(1, 0, 1)?.squeeze(1)?.contiguous()?;
                head.forward(&first.to_dtype(DType::F32)?)
            };
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// A student MLP that learns the features of a teacher, a transformer that is not trained. The fused softmax has no
/// gradient.
pub(crate) fn softmax(setup: &Setup, variant: Variant) -> Result<Step> {
    let size = Size { width: setup.size(512, 16), heads: setup.size(8, 2), blocks: setup.size(3, 1) };
    let (batch, length) = (setup.size(16, 2), setup.size(512, 4));
    let ways =
        Ways { fused_norm: true, fused_softmax: !variant.is_fault(), norm_queries: false, activation: Tensor::gelu };
    let teacher = Transformer::new(size, ways, &frozen(DType::F32, &setup.device))?;
    let (variables, vb) = trained(&setup.device);
    let student = Mlp::new(&[size.width, 2 * size.width, 2 * size.width, size.width], &vb)?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, length, size.width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, _) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let wanted = info_span!("teacher").in_scope(|| teacher.forward(&x)?.mean(1))?;
            let features = info_span!("student").in_scope(|| student.forward(&x.mean(1)?))?;
            let loss = info_span!("loss").in_scope(|| loss::mse(&features, &wanted))?;
            optimizer.backward_step(&loss)
        })
    }))
}
