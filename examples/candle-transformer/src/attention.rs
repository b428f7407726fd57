use candle_core::{D, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder, ops};
use kernspan_candle::{
    Op, flops,
    nn::{Linear, linear_no_bias},
};

/// Causal self-attention.
#[derive(Debug)]
pub(crate) struct Attention {
    queries_keys_values: Linear,
    out: Linear,
    heads: usize,
    mask: Tensor,
    /// The part with three inputs, which is not a `Module`. It is most of the work for long texts.
    op: Op,
}

impl Attention {
    pub(crate) fn new(width: usize, heads: usize, context: usize, vb: VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            queries_keys_values: linear_no_bias(width, 3 * width, vb.pp("qkv"))?,
            out: linear_no_bias(width, width, vb.pp("out"))?,
            heads,
            mask: mask(context, vb.device())?.to_dtype(vb.dtype())?,
            op: Op::at(&vb.pp("attention")).flops(flops::attention),
        })
    }

    fn attend(&self, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let (length, size) = (queries.dim(D::Minus2)?, queries.dim(D::Minus1)?);
        let scores = (queries.matmul(&keys.t()?)? / (size as f64).sqrt())?;
        let mask = self.mask.narrow(0, 0, length)?.narrow(1, 0, length)?;
        // `softmax_last_dim` would be a single kernel, but has no gradient.
        ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?.matmul(values)
    }
}

impl Module for Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let heads = self.queries_keys_values.forward(x)?.reshape((batch, length, 3, self.heads, width / self.heads))?;
        let part = |index: usize| heads.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
        let mixed = self.op.run(&[&queries, &keys, &values], || self.attend(&queries, &keys, &values))?;
        self.out.forward(&mixed.transpose(1, 2)?.reshape((batch, length, width))?)
    }
}

/// Returns the causal mask: 0 for earlier positions, minus infinity for later ones.
fn mask(context: usize, device: &Device) -> Result<Tensor> {
    let after = |row: usize, column: usize| if column > row { f32::NEG_INFINITY } else { 0.0 };
    let mask = (0..context).flat_map(|row| (0..context).map(move |column| after(row, column)));
    Tensor::from_iter(mask, device)?.reshape((context, context))
}
