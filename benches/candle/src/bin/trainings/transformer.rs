//! Transformers: blocks of attention and a feed-forward network, with parts that can be exchanged.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::{Module, VarBuilder, ops};
use kernspan_candle::{
    Op, Traced, flops,
    nn::{Linear, linear_no_bias},
};

/// The small number that norms add to the mean square.
const EPSILON: f64 = 1e-6;

/// The size of a transformer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) blocks: usize,
}

/// How the parts compute that have several ways to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// Whether norms and softmax are fused kernels, which have no gradient.
    pub(crate) fused_norm: bool,
    pub(crate) fused_softmax: bool,
    /// Whether queries and keys have norms, too, as in recent language models.
    pub(crate) norm_queries: bool,
    pub(crate) activation: fn(&Tensor) -> Result<Tensor>,
}

/// A stack of blocks.
#[derive(Debug)]
pub(crate) struct Transformer {
    blocks: Vec<Traced<Block>>,
}

impl Transformer {
    pub(crate) fn new(size: Size, ways: Ways, vb: &VarBuilder<'_>) -> Result<Self> {
        let block = |index| {
            let block = Traced::at(vb.pp(format!("blocks.{index}")), |vb| Block::new(size, ways, &vb))?;
            Ok(block.named("block"))
        };
        Ok(Self { blocks: (0..size.blocks).map(block).collect::<Result<_>>()? })
    }
}

impl Module for Transformer {
    /// Maps (batch, length, width) to the same shape.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.blocks.iter().try_fold(x.clone(), |x, block| block.forward(&x))
    }
}

/// Attention and a feed-forward network, each after a norm and with a residual connection.
#[derive(Debug)]
struct Block {
    norm1: Traced<RmsNorm>,
    attention: Traced<Attention>,
    norm2: Traced<RmsNorm>,
    up: Linear,
    down: Linear,
    ways: Ways,
}

impl Block {
    fn new(size: Size, ways: Ways, vb: &VarBuilder<'_>) -> Result<Self> {
        let width = size.width;
        Ok(Self {
            norm1: Traced::at(vb.pp("norm1"), |vb| RmsNorm::new(width, ways, &vb))?,
            attention: Traced::at(vb.pp("attention"), |vb| Attention::new(size, ways, &vb))?,
            norm2: Traced::at(vb.pp("norm2"), |vb| RmsNorm::new(width, ways, &vb))?,
            up: linear_no_bias(width, 4 * width, vb.pp("up"))?,
            down: linear_no_bias(4 * width, width, vb.pp("down"))?,
            ways,
        })
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.attention.forward(&self.norm1.forward(x)?)?)?;
        let inner = (self.ways.activation)(&self.up.forward(&self.norm2.forward(&x)?)?)?;
        &x + self.down.forward(&inner)?
    }
}

/// Attention over all positions.
#[derive(Debug)]
struct Attention {
    queries_keys_values: Linear,
    norms: Option<[Traced<RmsNorm>; 2]>,
    out: Linear,
    heads: usize,
    ways: Ways,
    op: Op,
}

impl Attention {
    fn new(size: Size, ways: Ways, vb: &VarBuilder<'_>) -> Result<Self> {
        let norm = |name: &str| {
            let length = size.width / size.heads;
            Traced::at(vb.pp(name), |vb| RmsNorm::new(length, ways, &vb))
        };
        let norms = if ways.norm_queries { Some([norm("query_norm")?, norm("key_norm")?]) } else { None };
        Ok(Self {
            queries_keys_values: linear_no_bias(size.width, 3 * size.width, vb.pp("qkv"))?,
            norms,
            out: linear_no_bias(size.width, size.width, vb.pp("out"))?,
            heads: size.heads,
            ways,
            op: Op::at(&vb.pp("attend")).flops(flops::attention),
        })
    }
}

impl Module for Attention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let heads = self.queries_keys_values.forward(x)?.reshape((batch, length, 3, self.heads, width / self.heads))?;
        let part = |index: usize| heads.narrow(2, index, 1)?.squeeze(2)?.transpose(1, 2)?.contiguous();
        let (mut queries, mut keys, values) = (part(0)?, part(1)?, part(2)?);
        if let Some([of_queries, of_keys]) = &self.norms {
            (queries, keys) = (of_queries.forward(&queries)?, of_keys.forward(&keys)?);
        }
        let mixed =
            self.op.run(&[&queries, &keys, &values], || attend(&queries, &keys, &values, self.ways.fused_softmax))?;
        self.out.forward(&mixed.transpose(1, 2)?.reshape((batch, length, width))?)
    }
}

/// Mixes values by how well keys match queries.
pub(crate) fn attend(queries: &Tensor, keys: &Tensor, values: &Tensor, fused: bool) -> Result<Tensor> {
    let scale = (queries.dim(D::Minus1)? as f64).sqrt().recip();
    let scores = (queries * scale)?.matmul(&keys.t()?)?;
    // The fused kernel has no gradient.
    let weights = if fused { ops::softmax_last_dim(&scores)? } else { ops::softmax(&scores, D::Minus1)? };
    weights.matmul(values)
}

/// Divides by the root of the mean square.
#[derive(Debug)]
struct RmsNorm {
    weight: Tensor,
    fused: bool,
}

impl RmsNorm {
    fn new(width: usize, ways: Ways, vb: &VarBuilder<'_>) -> Result<Self> {
        let weight = vb.get_with_hints(width, "weight", candle_nn::Init::Const(1.0))?;
        Ok(Self { weight, fused: ways.fused_norm })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.fused {
            return ops::rms_norm(x, &self.weight, EPSILON as f32);
        }
        // As it is in many models: in f32, because the squares of bf16 lose too much.
        let (dtype, x) = (x.dtype(), x.to_dtype(DType::F32)?);
        let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
        let x = x.broadcast_div(&(mean_square + EPSILON)?.sqrt()?)?;
        x.to_dtype(dtype)?.broadcast_mul(&self.weight)
    }
}
