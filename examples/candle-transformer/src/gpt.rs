use crate::attention::Attention;
use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::{Activation, LayerNorm, Module, VarBuilder};
// These were `candle_nn`'s.
use kernspan_candle::{
    Traced,
    nn::{Embedding, Linear, embedding, linear, linear_no_bias},
};

/// The number of tokens, which are bytes.
const VOCABULARY: usize = 256;

/// The size of a [`Gpt`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) blocks: usize,
    /// The longest input in bytes.
    pub(crate) context: usize,
}

/// A transformer that predicts the next byte.
///
/// All its parts have gradients. Many of Candle's do not: `RmsNorm`, `LayerNorm` with a bias, `rope` and
/// `softmax_last_dim` are kernels without a backward pass, and weights before them silently stay unchanged. So the
/// Llama of candle-transformers cannot be trained.
#[derive(Debug)]
pub(crate) struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    blocks: Vec<Traced<Block>>,
    norm: Traced<LayerNorm>,
    head: Linear,
    context: usize,
}

/// Attention and an MLP, each after a norm and with a residual connection.
#[derive(Debug)]
struct Block {
    norm1: Traced<LayerNorm>,
    attention: Traced<Attention>,
    norm2: Traced<LayerNorm>,
    mlp: Traced<Mlp>,
}

#[derive(Debug)]
struct Mlp {
    up: Linear,
    down: Linear,
}

impl Gpt {
    pub(crate) fn new(size: Size, vb: VarBuilder<'_>) -> Result<Self> {
        let Size { width, blocks, context, .. } = size;
        let block = |index| Ok(Traced::at(vb.pp(format!("blocks.{index}")), |vb| Block::new(size, vb))?.named("block"));
        Ok(Self {
            tokens: embedding(VOCABULARY, width, vb.pp("tokens"))?,
            positions: embedding(context, width, vb.pp("positions"))?,
            blocks: (0..blocks).map(block).collect::<Result<_>>()?,
            norm: norm(width, vb.pp("norm"))?,
            head: linear_no_bias(width, VOCABULARY, vb.pp("head"))?,
            context,
        })
    }

    /// Continues a text with the most likely bytes.
    pub(crate) fn complete(&self, text: &str, bytes: usize, device: &Device) -> Result<String> {
        let mut text = text.as_bytes().to_vec();
        for _ in 0..bytes.min(self.context.saturating_sub(text.len())) {
            let tokens = Tensor::from_slice(&text, (1, text.len()), device)?.to_dtype(DType::U32)?;
            let next = self.forward(&tokens)?.argmax(D::Minus1)?.flatten_all()?.get(text.len() - 1)?;
            text.push(next.to_scalar::<u32>()? as u8);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

impl Module for Gpt {
    /// Maps tokens (batch, length) to logits (batch, length, vocabulary).
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let positions = Tensor::arange(0, tokens.dim(1)? as u32, tokens.device())?;
        let x = self.tokens.forward(tokens)?.broadcast_add(&self.positions.forward(&positions)?)?;
        let x = self.blocks.iter().try_fold(x, |x, block| block.forward(&x))?;
        self.head.forward(&self.norm.forward(&x)?)
    }
}

impl Block {
    fn new(size: Size, vb: VarBuilder<'_>) -> Result<Self> {
        let Size { width, heads, context, .. } = size;
        Ok(Self {
            norm1: norm(width, vb.pp("norm1"))?,
            attention: Traced::at(vb.pp("attn"), |vb| Attention::new(width, heads, context, vb))?,
            norm2: norm(width, vb.pp("norm2"))?,
            mlp: Traced::at(vb.pp("mlp"), |vb| Mlp::new(width, vb))?,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.attention.forward(&self.norm1.forward(x)?)?)?;
        &x + self.mlp.forward(&self.norm2.forward(&x)?)?
    }
}

impl Mlp {
    fn new(width: usize, vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self { up: linear(width, 4 * width, vb.pp("up"))?, down: linear(4 * width, width, vb.pp("down"))? })
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down.forward(&Activation::Gelu.forward(&self.up.forward(x)?)?)
    }
}

/// Returns an `RmsNorm` without its fused kernel: the inner `LayerNorm` computes the same, and has a gradient.
fn norm(width: usize, vb: VarBuilder<'_>) -> Result<Traced<LayerNorm>> {
    Traced::at(vb, |vb| Ok(candle_nn::rms_norm(width, 1e-5, vb)?.into_inner()))
}

#[cfg(test)]
mod tests {
    use super::{Gpt, Size};
    use candle_core::{DType, Device, IndexOp, Result, Tensor};
    use candle_nn::{Module, VarBuilder, VarMap};

    fn gpt(variables: &VarMap) -> Result<Gpt> {
        let size = Size { width: 8, heads: 2, blocks: 2, context: 4 };
        Gpt::new(size, VarBuilder::from_varmap(variables, DType::F32, &Device::Cpu))
    }

    #[test]
    fn every_weight_has_a_gradient() -> Result<()> {
        let variables = VarMap::new();
        let logits = gpt(&variables)?.forward(&Tensor::new(&[[1_u32, 2, 3, 4]], &Device::Cpu)?)?;
        let gradients = logits.sqr()?.sum_all()?.backward()?;
        assert!(variables.all_vars().iter().all(|variable| gradients.get(variable).is_some()));
        Ok(())
    }

    #[test]
    fn the_mask_hides_later_bytes() -> Result<()> {
        let gpt = gpt(&VarMap::new())?;
        let logits =
            |tokens: &[u32; 3]| gpt.forward(&Tensor::new(&[*tokens], &Device::Cpu)?)?.i((0, ..2))?.to_vec2::<f32>();
        assert_eq!(logits(&[1, 2, 3])?, logits(&[1, 2, 4])?);
        Ok(())
    }
}
