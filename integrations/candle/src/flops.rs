//! How floating-point operations are counted.
//!
//! A multiplication and an addition are two. What is counted is what the mathematics asks for, not what a kernel does to get there
//! (padding, recomputation, both halves of a causal mask are as Candle computes them: in full).
//!
//! | module | FLOPs |
//! |---|---|
//! | [`matmul`] of m×k and k×n, `batch` times | 2 · batch · m · n · k |
//! | `Linear` on `rows` rows | 2 · rows · in · out, and rows · out with a bias |
//! | `Conv1d`, `Conv2d` | 2 · outputs · in channels ÷ groups · kernel size, and outputs with a bias; `outputs` counts every number that comes out |
//! | `ConvTranspose1d`, `ConvTranspose2d` | 2 · inputs · out channels ÷ groups · kernel size, and outputs with a bias |
//! | `Embedding` | none: it copies rows |
//! | `LayerNorm` | for each number: mean 1, difference 1, variance 2, scale 1, weight 1, and 1 with a bias |
//! | `LayerNorm` that leaves the mean (`RmsNorm`) | for each number: square and sum 2, scale 1, weight 1, and 1 with a bias |
//! | `BatchNorm` | for each number: difference 1, scale 1, and 2 for weight and bias; in training 3 more, for mean and variance |
//! | [`attention`] | both products, and for each score: scale 1, maximum, difference, exponential, sum and division of softmax 5 |
//! | `QMatMul` | as a product with its matrix |
//! | others | not counted, unless [`Op::flops`](crate::Op::flops) says how |
//!
//! The backward pass of an op is counted as twice its forward pass, as Candle computes both factors' gradients: exact for products
//! and convolutions without bias, which are nearly all of it; for others an estimate.

use candle_core::Tensor;

/// Of a product of the first two tensors.
///
/// ```
/// # use candle_core::{DType, Device, Tensor};
/// let a = Tensor::zeros((4, 8, 16), DType::F32, &Device::Cpu)?;
/// let b = Tensor::zeros((4, 16, 32), DType::F32, &Device::Cpu)?;
/// assert_eq!(kernspan_candle::flops::matmul(&[&a, &b], &a.matmul(&b)?), 2 * 4 * 8 * 16 * 32);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn matmul(inputs: &[&Tensor], output: &Tensor) -> u64 {
    let k = inputs.first().and_then(|input| input.dims().last()).copied().unwrap_or(0);
    2 * output.elem_count() as u64 * k as u64
}

/// Of attention: softmax(q · kᵀ) · v, of queries, keys and values whose last dimensions are the length and the size of a head.
///
/// ```
/// # use candle_core::{DType, Device, Tensor};
/// // A batch of 2, 8 heads of 64, 100 queries to 300 keys.
/// let q = Tensor::zeros((2, 8, 100, 64), DType::F32, &Device::Cpu)?;
/// let k = Tensor::zeros((2, 8, 300, 64), DType::F32, &Device::Cpu)?;
/// let scores = 2 * 8 * 100 * 300;
/// assert_eq!(kernspan_candle::flops::attention(&[&q, &k, &k], &q), (2 * 64 + 6 + 2 * 64) * scores);
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn attention(inputs: &[&Tensor], output: &Tensor) -> u64 {
    let [queries, keys, ..] = inputs else { return 0 };
    let size = |tensor: &Tensor| tensor.dims().last().copied().unwrap_or(0) as u64;
    let length = keys.dims().iter().rev().nth(1).copied().unwrap_or(0) as u64;
    let (per_query, rows) = (size(queries), queries.elem_count() as u64 / size(queries).max(1));
    rows * length * (2 * per_query + 6 + 2 * size(output))
}
