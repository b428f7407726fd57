use candle_core::Tensor;
use std::{fmt, sync::Arc};

/// The cost of one run of an op.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) flops: u64,
    /// Bytes read and written, each tensor counted once; `None` if unknown.
    pub(crate) bytes: Option<u64>,
    pub(crate) gemm: Option<Gemm>,
    /// Whether the FLOPs are those of matrix products, which tensor cores can compute.
    pub(crate) is_products: bool,
}

/// The sizes of a product of an m×k and a k×n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemm {
    pub(crate) m: u64,
    pub(crate) n: u64,
    pub(crate) k: u64,
}

/// A function that computes the cost of an op from its inputs and its output.
#[derive(Clone)]
pub(crate) struct Formula(Arc<Apply>);

type Apply = dyn Fn(&[&Tensor], &Tensor) -> Cost + Send + Sync;

impl Cost {
    pub(crate) fn of_flops(flops: u64) -> Self {
        Self { flops, ..Self::default() }
    }
}

impl Formula {
    pub(crate) fn new(formula: impl Fn(&[&Tensor], &Tensor) -> Cost + Send + Sync + 'static) -> Self {
        Self(Arc::new(formula))
    }

    pub(crate) fn apply(&self, inputs: &[&Tensor], output: &Tensor) -> Cost {
        (self.0)(inputs, output)
    }
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Formula")
    }
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}
