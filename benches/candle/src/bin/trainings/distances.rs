//! A language model that prefers what is near: attention with a bias that depends on the distance of two words.

use crate::{
    case::{Setup, Step},
    models::{learn, next, sgd, trained},
};
use candle_core::{D, Result, Tensor};
use candle_nn::{VarBuilder, ops};
use kernspan_candle::{
    data,
    nn::{self, Linear, linear_no_bias},
};
use tracing::{info_span, instrument};
use trainings_runner::{Random, Variant};

const CLASSES: usize = 64;

/// A transformer with ALiBi. The biases of all pairs of words are made and copied to the GPU in each step, or once.
pub(crate) fn biased(setup: &Setup, variant: Variant) -> Result<Step> {
    // The biases have 32 MiB.
    let (heads, length, width) = (setup.size(8, 2), setup.size(1024, 4), setup.size(512, 16));
    let (batch, words, device) = (setup.size(8, 2), setup.size(8192, 16), setup.device.clone());
    let upload = {
        let device = device.clone();
        move || Tensor::from_vec(biases(heads, length), (heads, length, length), &device)
    };
    let uploaded = if variant.is_fault() { None } else { Some(upload()?) };
    let vectors = Tensor::randn(0_f32, 1.0, (words, width), &device)?;
    let (variables, vb) = trained(&device);
    let block = |index: usize| Block::new(width, heads, &vb.pp(format!("blocks.{index}")));
    let blocks: Vec<Block> = (0..2).map(block).collect::<Result<_>>()?;
    let head = nn::linear(width, CLASSES, vb.pp("head"))?;
    let mut optimizer = sgd(&variables)?;
    let mut random = Random::new(95);
    let mut batches = data(std::iter::repeat_with(move || -> Result<(Tensor, Tensor)> {
        let mut numbers = |count: usize, end: usize| (0..count).map(|_| random.below(end) as u32).collect::<Vec<_>>();
        let (ids, labels) = (numbers(batch * length, words), numbers(batch, CLASSES));
        Ok((Tensor::from_vec(ids, batch * length, &device)?, Tensor::from_vec(labels, batch, &device)?))
    }));
    Ok(Box::new(move || {
        let (ids, labels) = next(&mut batches)??;
        info_span!("train_step").in_scope(|| {
            let x = info_span!("lookup").in_scope(|| vectors.index_select(&ids, 0)?.reshape((batch, length, width)))?;
            let biases = info_span!("biases").in_scope(|| uploaded.clone().map_or_else(&upload, Ok))?;
            let forward = || {
                let x = blocks.iter().try_fold(x, |x, block| block.forward(&x, &biases))?;
                head.forward(&x.mean(1)?)
            };
            let logits = info_span!("forward").in_scope(forward)?;
            learn(&mut optimizer, &logits, &labels)
        })
    }))
}

/// Returns a bias for each head and each pair of words: the further they are apart, the lower.
fn biases(heads: usize, length: usize) -> Vec<f32> {
    let mut biases = Vec::with_capacity(heads * length * length);
    for head in 1..=heads {
        let slope = (-8.0 * head as f32 / heads as f32).exp2();
        for query in 0..length {
            biases.extend((0..length).map(|key| -slope * query.abs_diff(key) as f32));
        }
    }
    biases
}

/// Attention and a feed-forward network, each with a residual connection.
#[derive(Debug)]
struct Block {
    queries_keys_values: Linear,
    out: Linear,
    up: Linear,
    down: Linear,
    heads: usize,
}

impl Block {
    fn new(width: usize, heads: usize, vb: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            queries_keys_values: linear_no_bias(width, 3 * width, vb.pp("qkv"))?,
            out: linear_no_bias(width, width, vb.pp("out"))?,
            up: linear_no_bias(width, 4 * width, vb.pp("up"))?,
            down: linear_no_bias(4 * width, width, vb.pp("down"))?,
            heads,
        })
    }

    #[instrument(name = "block", skip_all)]
    fn forward(&self, x: &Tensor, biases: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let size = width / self.heads;
        let heads = self.queries_keys_values.forward(x)?.reshape((batch, length, 3, self.heads, size))?;
        let part = |index: usize| heads.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let queries = (part(0)? * (size as f64).sqrt().recip())?;
        let scores = queries.matmul(&part(1)?.t()?)?.broadcast_add(biases)?;
        let mixed = ops::softmax(&scores, D::Minus1)?.matmul(&part(2)?)?;
        let x = (x + self.out.forward(&mixed.transpose(1, 2)?.reshape((batch, length, width))?)?)?;
        &x + self.down.forward(&self.up.forward(&x)?.relu()?)?
    }
}
