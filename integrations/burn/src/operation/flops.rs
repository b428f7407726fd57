use super::Known;
use burn::backend::ir::OperationIr;

/// How many floating-point operations one of Burn's operations takes, if that is known.
///
/// A multiplication and an addition are two. What is counted is what the mathematics asks for, not what a kernel does to get there:
/// padding and both halves of a causal mask are counted in full. The same as in kernspan-candle, where both count.
///
/// | operations | FLOPs |
/// |---|---|
/// | `matmul` of m×k and k×n | 2 · m · n · k for each of the batch, also where one side is broadcast |
/// | `linear` on rows | 2 · rows · in · out, and rows · out with a bias |
/// | `linear_x_backward`, `linear_weight_backward` | 2 · rows · in · out |
/// | `conv1d`, `conv2d`, `conv3d`, `deform_conv2d` | 2 · outputs · in channels ÷ groups · kernel size, and outputs with a bias; `outputs` counts every number that comes out; where a deformable one looks is not counted |
/// | `conv_transpose1d`, `conv_transpose2d`, `conv_transpose3d` | 2 · inputs · out channels ÷ groups · kernel size, and outputs with a bias |
/// | `…_x_backward` and `…_weight_backward` of convolutions | as forward, without a bias; `deform_conv2d_backward` has both, so twice that, and outputs with a bias |
/// | `…_bias_backward` | one for each number of the gradient |
/// | `attention` | both products, and for each score: scale 1, maximum, difference, exponential, sum and division of softmax 5, and 1 with a bias |
/// | `softmax`, `log_softmax`; `softmin` | 5 for each number; 6 |
/// | `layer_norm` | for each number: mean 1, difference 1, variance 2, scale 1, weight 1, and 1 with a bias |
/// | `batch_norm`, with mean and variance given | for each number: difference 1, scale 1, and 2 for weight and bias |
/// | `add`, `exp`, `clamp`, `gelu`, `cumsum`, `quantize` and all else that makes each number of one or two | one for each that comes out, however hard the function |
/// | `relu_backward` and those of other activations | 2 for each number: the derivative, and the product |
/// | `cross` | 3 for each number |
/// | `sum`, `mean`, `prod`, `max`, `min` and the like, of all or of dimensions | one for each number that goes in |
/// | `avg_pool…`, `max_pool…` | outputs · kernel size |
/// | `avg_pool…_backward`; `max_pool…_with_indices_backward` | the gradient's numbers · kernel size; the gradient's numbers |
/// | `adaptive_avg_pool…` and backward | one for each number of both ends: an estimate where windows overlap |
/// | `interpolate`, `grid_sample_2d` | for each number that comes out, a sum of 4 products if bilinear, 16 if bicubic, 36 if Lanczos; backward the same for each of the gradient |
/// | `scatter`, `scatter_nd`, `select_assign`, `embedding_backward` | one for each number that is put in, unless it replaces what was there |
/// | comparisons, `argmax`, `sort` and what else makes booleans or indices, or only puts in order | none |
/// | what moves, makes or casts: `reshape`, `slice`, `cat`, `gather`, `embedding`, `cast`, `zeros`, `random`, `from_data`, `drop` | none |
/// | whatever makes integers or booleans | none |
/// | `custom`, `all_reduce`, `ctc_loss` and its backward | not known |
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
    let (known, arguments) = Known::of(operation);
    known.cost(&arguments).flops
}
