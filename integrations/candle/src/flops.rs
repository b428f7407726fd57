//! Counts of floating-point operations (FLOPs).
//!
//! A multiplication and an addition count as two. The counts follow the mathematical definition of an operation, not
//! the instructions of a kernel. Padding, recomputation and both halves of a causal mask count in full, as Candle
//! computes them.
//!
//! | module | FLOPs |
//! |---|---|
//! | [`matmul`] of m×k and k×n, `batch` times | 2 · batch · m · n · k |
//! | `Linear` on `rows` rows | 2 · rows · in · out, and rows · out with a bias |
//! | `Conv1d`, `Conv2d` | 2 · outputs · in channels ÷ groups · kernel size, and outputs with a bias |
//! | `ConvTranspose1d`, `ConvTranspose2d` | 2 · inputs · out channels ÷ groups · kernel size, and outputs with a bias |
//! | `Embedding` | 0: it copies rows |
//! | `LayerNorm` | per element: mean 1, difference 1, variance 2, scale 1, weight 1, and 1 with a bias |
//! | `LayerNorm` without the mean (`RmsNorm`) | per element: square and sum 2, scale 1, weight 1, and 1 with a bias |
//! | `BatchNorm` | per element: difference 1, scale 1, weight and bias 2; in training 3 more, for mean and variance |
//! | [`attention`] | both products, and per score: scale 1, softmax 5 |
//! | `QMatMul` | as a product with the matrix that is not quantized |
//! | others | not counted, unless [`Op::flops`](crate::Op::flops) gives a function |
//!
//! Inputs and outputs stand for the number of elements of these tensors. A softmax counts 5 per element: maximum,
//! difference, exponential, sum and division.
//!
//! With `candle_core::cuda::set_gemm_reduced_precision_f32(true)`, Candle computes products of `f32` with TF32, and MFU
//! is then relative to the device's TF32 peak.
//!
//! The backward pass of an op counts as twice its forward pass, because Candle computes the gradients of both factors.
//! It is exact for products and convolutions without a bias, which are nearly all of the work, and an estimate for
//! other ops.

use candle_core::Tensor;

/// Returns the FLOPs of the matrix product of the first two tensors, by their shapes, for
/// [`Op::flops`](crate::Op::flops).
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
    inputs.first().map_or(0, |input| matmul_of(1, elements(output), 1, last_dim(input)))
}

/// Returns the FLOPs of `batch` products of an m×k and a k×n matrix.
///
/// ```
/// assert_eq!(kernspan_candle::flops::matmul_of(4, 8, 32, 16), 2 * 4 * 8 * 32 * 16);
/// ```
pub fn matmul_of(batch: u64, m: u64, n: u64, k: u64) -> u64 {
    [batch, m, n, k].into_iter().fold(2, u64::saturating_mul)
}

/// Returns the FLOPs of attention, softmax(q · kᵀ) · v, by the shapes of queries, keys and values, for
/// [`Op::flops`](crate::Op::flops).
///
/// The last two dimensions of each are the length and the head size, in that order. (candle-flash-attn orders them
/// differently.)
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
    let size = last_dim(queries);
    attention_of(elements(queries) / size.max(1), length, size)
}

/// Returns the FLOPs of attention: `rows` queries (over all heads and the whole batch), each with `keys` keys.
///
/// ```
/// let scores = 1600 * 300;
/// assert_eq!(kernspan_candle::flops::attention_of(1600, 300, 64), scores * (2 * 64 + 6 + 2 * 64));
/// ```
pub fn attention_of(rows: u64, keys: u64, head_size: u64) -> u64 {
    let scores = rows.saturating_mul(keys);
    scores.saturating_mul(head_size.saturating_mul(4).saturating_add(6))
}

/// Returns the number of elements.
pub(crate) fn elements(tensor: &Tensor) -> u64 {
    tensor.elem_count() as u64
}

fn last_dim(tensor: &Tensor) -> u64 {
    tensor.dims().last().map_or(0, |&size| size as u64)
}
