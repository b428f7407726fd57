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
//! With `candle_core::cuda::set_gemm_reduced_precision_f32(true)` products of `f32` are made with TF32, for which devices have a higher peak:
//! then that is the one that counts.
//!
//! The backward pass of an op is counted as twice its forward pass, as Candle computes both factors' gradients: exact for products
//! and convolutions without bias, which are nearly all of it; for others an estimate.

use candle_core::Tensor;

/// Of a product of the first two tensors: [`matmul_of`] by their shapes, for [`Op::flops`](crate::Op::flops).
///
/// ```
/// # use candle_core::{DType, Device, Tensor};
/// use kernspan_candle::flops;
///
/// let a = Tensor::zeros((4, 8, 16), DType::F32, &Device::Cpu)?;
/// let b = Tensor::zeros((4, 16, 32), DType::F32, &Device::Cpu)?;
/// assert_eq!(flops::matmul(&[&a, &b], &a.matmul(&b)?), flops::matmul_of(4, 8, 32, 16));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn matmul(inputs: &[&Tensor], output: &Tensor) -> u64 {
    inputs.first().map_or(0, |input| matmul_of(1, numbers(output), 1, last(input)))
}

/// Of `batch` products of m×k and k×n.
///
/// ```
/// assert_eq!(kernspan_candle::flops::matmul_of(4, 8, 32, 16), 2 * 4 * 8 * 32 * 16);
/// ```
pub fn matmul_of(batch: u64, m: u64, n: u64, k: u64) -> u64 {
    [batch, m, n, k].into_iter().fold(2, u64::saturating_mul)
}

/// Of attention, softmax(q · kᵀ) · v: [`attention_of`] by the shapes of queries, keys and values, whose last dimensions are the
/// length and the size of a head, in that order (not as candle-flash-attn has them), for [`Op::flops`](crate::Op::flops).
///
/// ```
/// # use candle_core::{DType, Device, Tensor};
/// use kernspan_candle::flops;
///
/// // A batch of 2, 8 heads of 64, 100 queries to 300 keys.
/// let q = Tensor::zeros((2, 8, 100, 64), DType::F32, &Device::Cpu)?;
/// let k = Tensor::zeros((2, 8, 300, 64), DType::F32, &Device::Cpu)?;
/// assert_eq!(flops::attention(&[&q, &k, &k], &q), flops::attention_of(2 * 8 * 100, 300, 64));
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn attention(inputs: &[&Tensor], _: &Tensor) -> u64 {
    let [queries, keys, ..] = inputs else { return 0 };
    let length = keys.dims().iter().rev().nth(1).map_or(0, |&length| length as u64);
    let size = last(queries);
    attention_of(numbers(queries) / size.max(1), length, size)
}

/// Of attention of so many rows of queries, of all heads and all of a batch, to `keys` keys each, with heads of one size.
///
/// ```
/// let scores = 1600 * 300;
/// assert_eq!(kernspan_candle::flops::attention_of(1600, 300, 64), scores * (2 * 64 + 6 + 2 * 64));
/// ```
pub fn attention_of(rows: u64, keys: u64, head_size: u64) -> u64 {
    let scores = rows.saturating_mul(keys);
    scores.saturating_mul(head_size.saturating_mul(4).saturating_add(6))
}

pub(crate) fn numbers(tensor: &Tensor) -> u64 {
    tensor.elem_count() as u64
}

fn last(tensor: &Tensor) -> u64 {
    tensor.dims().last().map_or(0, |&size| size as u64)
}
