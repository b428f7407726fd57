//! A language model whose queries and keys are rotated by their positions.

use crate::{
    case::{Setup, Step},
    models::{batches, frozen, learn, next, sgd, trained},
    transformer::attend,
};
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder, ops, rotary_emb::rope};
use kernspan_candle::{
    Traced,
    nn::{self, Linear, linear_no_bias},
};
use tracing::info_span;
use trainings_runner::Variant;

/// A classifier on the features of a language model that is not trained. The fused rotation has no gradient.
pub(crate) fn rotated(setup: &Setup, variant: Variant) -> Result<Step> {
    const CLASSES: usize = 64;
    const BLOCKS: usize = 4;
    let (width, heads) = (setup.size(512, 16), setup.size(8, 2));
    let (batch, length) = (setup.size(128, 2), setup.size(256, 4));
    // Candle's products of bf16 matrices need a GPU.
    let dtype = if setup.device.is_cpu() { DType::F32 } else { DType::BF16 };
    let rotation = Rotation::new(length, width / heads, variant, dtype, &setup.device)?;
    let weights = frozen(dtype, &setup.device);
    let block = |index: usize| {
        let make = |vb: VarBuilder<'_>| Block::new(width, heads, rotation.clone(), &vb);
        Ok(Traced::at(weights.pp(format!("blocks.{index}")), make)?.named("block"))
    };
    let blocks: Vec<Traced<Block>> = (0..BLOCKS).map(block).collect::<Result<_>>()?;
    let (variables, vb) = trained(&setup.device);
    let head = nn::linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut batches = batches(&[batch, length, width], CLASSES, &setup.device)?;
    Ok(Box::new(move || {
        let (x, labels) = next(&mut batches)?;
        info_span!("train_step").in_scope(|| {
            let features = info_span!("features").in_scope(|| {
                let x = blocks.iter().try_fold(x.to_dtype(dtype)?, |x, block| block.forward(&x))?;
                x.narrow(1, length - 1, 1)?.squeeze(1)?.contiguous()?.to_dtype(DType::F32)
            })?;
            let logits = head.forward(&features)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// The rotation of a position: an angle for each pair of values.
#[derive(Clone, Debug)]
struct Rotation {
    cos: Tensor,
    sin: Tensor,
    fused: bool,
}

impl Rotation {
    fn new(length: usize, values: usize, variant: Variant, dtype: DType, device: &Device) -> Result<Self> {
        let fused = !variant.is_fault();
        // In elementary operations, both values of a pair need their angle.
        let pairs = values / 2;
        let columns = if fused { pairs } else { values };
        let angle = |index: usize| {
            let (position, pair) = (index / columns, index % columns % pairs);
            position as f32 / 10_000_f32.powf(pair as f32 / pairs as f32)
        };
        let angles: Vec<f32> = (0..length * columns).map(angle).collect();
        let angles = Tensor::from_vec(angles, (length, columns), device)?;
        Ok(Self { cos: angles.cos()?.to_dtype(dtype)?, sin: angles.sin()?.to_dtype(dtype)?, fused })
    }
}

impl Module for Rotation {
    /// Rotates (batch, heads, length, values).
    #[tracing::instrument(name = "rotate", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.fused {
            return rope(x, &self.cos, &self.sin);
        }
        let half = x.dim(D::Minus1)? / 2;
        let (first, second) = (x.narrow(D::Minus1, 0, half)?, x.narrow(D::Minus1, half, half)?);
        let swapped = Tensor::cat(&[second.neg()?, first.contiguous()?], D::Minus1)?;
        x.broadcast_mul(&self.cos)? + swapped.broadcast_mul(&self.sin)?
    }
}

/// Attention and a feed-forward network, each after a norm and with a residual connection.
#[derive(Debug)]
struct Block {
    norms: [Tensor; 2],
    queries_keys_values: Linear,
    rotation: Rotation,
    out: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl Block {
    fn new(width: usize, heads: usize, rotation: Rotation, vb: &VarBuilder<'_>) -> Result<Self> {
        let norm = |name: &str| vb.get_with_hints(width, name, candle_nn::Init::Const(1.0));
        Ok(Self {
            norms: [norm("norm1")?, norm("norm2")?],
            queries_keys_values: linear_no_bias(width, 3 * width, vb.pp("qkv"))?,
            rotation,
            out: linear_no_bias(width, width, vb.pp("out"))?,
            up: linear_no_bias(width, 2 * width, vb.pp("up"))?,
            down: linear_no_bias(2 * width, width, vb.pp("down"))?,
            heads,
        })
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let heads = self.queries_keys_values.forward(x)?.reshape((batch, length, 3, self.heads, width / self.heads))?;
        let part = |index: usize| heads.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (queries, keys) = (self.rotation.forward(&part(0)?)?, self.rotation.forward(&part(1)?)?);
        let mixed = info_span!("attend").in_scope(|| attend(&queries, &keys, &part(2)?, true))?;
        self.out.forward(&mixed.transpose(1, 2)?.reshape((batch, length, width))?)
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let norm = |x: &Tensor, index: usize| ops::rms_norm(x, &self.norms[index], 1e-6);
        let x = (x + self.attention(&norm(x, 0)?)?)?;
        &x + self.down.forward(&self.up.forward(&norm(&x, 1)?)?.gelu()?)?
    }
}
