use super::kind::OperationKind;
use burn::backend::ir::OperationIr;

/// Returns the floating-point operations (FLOPs) of one of Burn's operations; `None` if unknown.
///
/// A multiplication and an addition count as two. The counts follow the mathematical definition of an operation, not
/// the instructions of a kernel. Padding and both halves of a causal mask count in full. For operations that both know,
/// the counts are those of kernspan-candle.
///
/// | operations | FLOPs |
/// |---|---|
/// | `matmul` of m×k and k×n | 2 · m · n · k for each product of the batch, also if one side is broadcast |
/// | `linear` on rows | 2 · rows · in · out, and rows · out with a bias |
/// | `linear_x_backward`, `linear_weight_backward` | 2 · rows · in · out |
/// | `conv1d` to `3d`, `deform_conv2d` | 2 · outputs · in channels ÷ groups · kernel size, and outputs with a bias |
/// | `conv_transpose1d` to `3d` | 2 · inputs · out channels ÷ groups · kernel size, and outputs with a bias |
/// | `…_x_backward`, `…_weight_backward` of convolutions | as the forward pass, without a bias |
/// | `deform_conv2d_backward` | twice the forward pass, and outputs with a bias |
/// | `…_bias_backward` | 1 per element of the gradient |
/// | `attention` | both products, and per score: scale 1, softmax 5, and 1 with a bias |
/// | `softmax`, `log_softmax` | 5 per element: maximum, difference, exponential, sum, division |
/// | `softmin` | 6 per element |
/// | `layer_norm` | per element: mean 1, difference 1, variance 2, scale 1, weight 1, and 1 with a bias |
/// | `batch_norm`, with given mean and variance | per element: difference 1, scale 1, weight and bias 2 |
/// | `add`, `exp`, `clamp`, `gelu`, `cumsum`, `quantize` and other elementwise functions | 1 per output element |
/// | `relu_backward` and those of other activations | 2 per element: the derivative and the product |
/// | `cross` | 3 per element |
/// | `sum`, `mean`, `prod`, `max`, `min` and other reductions | 1 per input element |
/// | `avg_pool…`, `max_pool…` | outputs · kernel size |
/// | `avg_pool…_backward` | elements of the gradient · kernel size |
/// | `max_pool…_with_indices_backward` | elements of the gradient |
/// | `adaptive_avg_pool…` and backward | inputs + outputs; an estimate if windows overlap |
/// | `interpolate`, `grid_sample_2d` | per output a sum of 4 (bilinear), 16 (bicubic) or 36 (Lanczos) products |
/// | `interpolate_backward` | the same for each element of the gradient |
/// | `scatter`, `scatter_nd`, `select_assign`, `embedding_backward` | 1 per written element, 0 if it only replaces |
/// | comparisons, `argmax`, `sort` | 0 |
/// | `reshape`, `slice`, `cat`, `gather`, `embedding`, `cast`, `zeros`, `random`, `from_data`, `drop` | 0 |
/// | operations with an integer or boolean output | 0 |
/// | `custom`, `all_reduce`, `ctc_loss`, `ctc_loss_backward` | unknown |
///
/// Inputs and outputs stand for the number of elements of these tensors. The computation of a deformable convolution's
/// sampling positions is not counted.
///
/// ```
/// use burn::{
///     backend::ir::{FloatOperationIr, MatmulOpIr, OperationIr, TensorId, TensorIr},
///     tensor::{DType, Shape},
/// };
///
/// let tensor = |id, dims: [usize; 2]| TensorIr::uninit(TensorId::new(id), Shape::new(dims), DType::F32);
/// let (lhs, rhs, out) = (tensor(0, [8, 16]), tensor(1, [16, 32]), tensor(2, [8, 32]));
/// let matmul = OperationIr::Float(DType::F32, FloatOperationIr::Matmul(MatmulOpIr { lhs, rhs, out }));
/// assert_eq!(kernspan_burn::flops(&matmul), Some(2 * 8 * 32 * 16));
/// ```
pub fn flops(operation: &OperationIr) -> Option<u64> {
    let (kind, arguments) = OperationKind::of(operation);
    kind.cost(&arguments).flops
}
