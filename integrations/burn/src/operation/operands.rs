use super::arguments::{Arguments, Tensors, field_names};
use burn::{backend::ir::*, tensor::IndexingUpdateOp};

/// Access to the arguments of one of Burn's operation structs, without the allocation of [`OperationIr::inputs`].
pub(super) trait Operands {
    fn arguments(&self) -> Arguments<'_>;
}

/// A field that is a tensor, or an optional one.
trait TensorField {
    fn tensor(&self) -> Option<&TensorIr>;
}

impl TensorField for TensorIr {
    fn tensor(&self) -> Option<&TensorIr> {
        Some(self)
    }
}

impl TensorField for Option<TensorIr> {
    fn tensor(&self) -> Option<&TensorIr> {
        self.as_ref()
    }
}

/// Implements [`Operands`]. Each line has one of Burn's structs, its inputs and outputs as `our name: Burn's name`, and
/// if needed a function for [`Arguments::work_per_element`].
macro_rules! operands {
    ($(
        $kind:ident:
            [$($input:ident: $($from:ident).+),*] -> [$($output:ident: $to:ident),*]
            $(, |$ir:ident| $work_per_element:expr)?;
    )*) => {
        $(impl Operands for $kind {
            #[inline]
            fn arguments(&self) -> Arguments<'_> {
                Arguments {
                    inputs: Tensors::new(field_names!($($input)*), [$(self.$($from).+.tensor()),*]),
                    outputs: Tensors::new(field_names!($($output)*), [$(self.$to.tensor()),*]),
                    $(work_per_element: { let $ir = self; $work_per_element },)?
                    ..Arguments::NONE
                }
            }
        })*
    };
}

operands! {
    AdaptiveAvgPool1dBackwardOpIr: [input: x, grad: grad] -> [output: out];
    AdaptiveAvgPool1dOpIr: [input: x] -> [output: out];
    AdaptiveAvgPool2dBackwardOpIr: [input: x, grad: grad] -> [output: out];
    AdaptiveAvgPool2dOpIr: [input: x] -> [output: out];
    AdaptiveAvgPool3dBackwardOpIr: [input: x, grad: grad] -> [output: out];
    AdaptiveAvgPool3dOpIr: [input: x] -> [output: out];
    AllReduceOpIr: [input: tensor] -> [output: out];
    AttentionOpIr: [query: query, key: key, value: value, mask: mask, bias: attn_bias] -> [output: out];
    AvgPool1dBackwardOpIr: [input: x, grad: grad] -> [output: out], |ir| product(&[ir.kernel_size]);
    AvgPool1dOpIr: [input: x] -> [output: out], |ir| product(&[ir.kernel_size]);
    AvgPool2dBackwardOpIr: [input: x, grad: grad] -> [output: out], |ir| product(&ir.kernel_size);
    AvgPool2dOpIr: [input: x] -> [output: out], |ir| product(&ir.kernel_size);
    BatchNormOpIr: [input: x, gamma: gamma, beta: beta, mean: mean, variance: variance] -> [output: out];
    BinaryOpIr: [lhs: lhs, rhs: rhs] -> [output: out];
    CastOpIr: [input: input] -> [output: out];
    ClampOpIr: [input: tensor] -> [output: out];
    Conv1dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    Conv1dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    Conv1dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    Conv1dXBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    Conv2dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    Conv2dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    Conv2dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    Conv2dXBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    Conv3dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    Conv3dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    Conv3dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    Conv3dXBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    ConvTranspose1dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    ConvTranspose1dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    ConvTranspose1dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    ConvTranspose2dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    ConvTranspose2dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    ConvTranspose2dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    ConvTranspose3dBiasBackwardOpIr: [input: x, bias: bias, grad: output_grad] -> [output: out];
    ConvTranspose3dOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    ConvTranspose3dWeightBackwardOpIr: [input: x, weight: weight, grad: output_grad] -> [output: out];
    CreationOpIr: [] -> [output: out];
    CrossOpIr: [lhs: lhs, rhs: rhs] -> [output: out];
    CtcLossBackwardOpIr: [
        input: log_probs, targets: targets, input_lengths: input_lengths, target_lengths: target_lengths,
        grad: grad_loss
    ] -> [output: out];
    CtcLossOpIr: [
        input: log_probs, targets: targets, input_lengths: input_lengths, target_lengths: target_lengths
    ] -> [output: out];
    DeformConv2dBackwardOpIr: [
        input: x, weight: weight, bias: bias, grad: out_grad, offset: offset, mask: mask
    ] -> [
        output: input_grad, weight_grad: weight_grad, bias_grad: bias_grad, offset_grad: offset_grad,
        mask_grad: mask_grad
    ];
    DeformConv2dOpIr: [input: x, weight: weight, bias: bias, offset: offset, mask: mask] -> [output: out];
    DequantizeOpIr: [input: input] -> [output: out];
    DimOpIr: [input: input] -> [output: out];
    EmbeddingBackwardOpIr: [weight: weights, grad: out_grad, indices: indices] -> [output: out];
    EmbeddingOpIr: [weight: weights, indices: indices] -> [output: out];
    FlipOpIr: [input: input] -> [output: out];
    FullOpIr: [] -> [output: out];
    GatherNdOpIr: [input: data, indices: indices] -> [output: out];
    GatherOpIr: [input: tensor, indices: indices] -> [output: out];
    GridSample2dOpIr: [input: tensor, grid: grid] -> [output: out], |ir| neighbours(&ir.options.mode);
    HardSigmoidOpIr: [input: tensor] -> [output: out];
    InitOperationIr: [] -> [output: out];
    InterpolateBackwardOpIr: [input: x, grad: grad] -> [output: out], |ir| neighbours(&ir.options.mode);
    InterpolateOpIr: [input: x] -> [output: out], |ir| neighbours(&ir.options.mode);
    LayerNormOpIr: [input: input, gamma: gamma, beta: beta] -> [output: out];
    LinearBiasBackwardOpIr: [grad: output_grad] -> [output: out];
    LinearOpIr: [input: x, weight: weight, bias: bias] -> [output: out];
    LinearWeightBackwardOpIr: [input: x, grad: output_grad] -> [output: out];
    LinearXBackwardOpIr: [grad: output_grad, weight: weight] -> [output: out];
    MaskFillOpIr: [input: tensor, mask: mask] -> [output: out];
    MaskWhereOpIr: [input: tensor, mask: mask, value: value] -> [output: out];
    MatmulOpIr: [lhs: lhs, rhs: rhs] -> [output: out];
    MaxPool1dOpIr: [input: x] -> [output: out], |ir| product(&[ir.kernel_size]);
    MaxPool1dWithIndicesBackwardOpIr: [input: x, grad: grad, indices: indices] -> [output: out];
    MaxPool1dWithIndicesOpIr: [input: x] -> [output: out, indices: out_indices], |ir| product(&[ir.kernel_size]);
    MaxPool2dOpIr: [input: x] -> [output: out], |ir| product(&ir.kernel_size);
    MaxPool2dWithIndicesBackwardOpIr: [input: x, grad: grad, indices: indices] -> [output: out];
    MaxPool2dWithIndicesOpIr: [input: x] -> [output: out, indices: out_indices], |ir| product(&ir.kernel_size);
    PadOpIr: [input: input] -> [output: out];
    PermuteOpIr: [input: input] -> [output: out];
    QuantizeOpIr: [input: tensor, scales: qparams.scales, global: qparams.global] -> [output: out];
    RandomOpIr: [] -> [output: out];
    ReduceDimOpIr: [input: input] -> [output: out];
    ReduceDimWithIndicesOpIr: [input: tensor] -> [output: out, indices: out_indices];
    ReduceDimsOpIr: [input: input] -> [output: out];
    ReduceOpIr: [input: input] -> [output: out];
    RepeatDimOpIr: [input: tensor] -> [output: out];
    ScalarOpIr: [input: lhs] -> [output: out];
    ScatterNdOpIr: [input: data, indices: indices, value: values] -> [output: out], |ir| ops_per_update(&ir.reduction);
    ScatterOpIr: [input: tensor, indices: indices, value: value] -> [output: out], |ir| ops_per_update(&ir.update);
    SelectAssignOpIr: [input: tensor, indices: indices, value: value] -> [output: out], |ir| ops_per_update(&ir.update);
    SelectOpIr: [input: tensor, indices: indices] -> [output: out];
    ShapeOpIr: [input: input] -> [output: out];
    SliceAssignOpIr: [input: tensor, value: value] -> [output: out], |_ir| 0;
    SliceOpIr: [input: tensor] -> [output: out];
    SortOpIr: [input: input] -> [output: out];
    SortWithIndicesOpIr: [input: input] -> [output: out, indices: out_indices];
    SwapDimsOpIr: [input: input] -> [output: out];
    TopKWithIndicesOpIr: [input: tensor] -> [output: out, indices: out_indices];
    UnaryOpIr: [input: input] -> [output: out];
    Unfold4dOpIr: [input: x] -> [output: out];
    UnfoldOpIr: [input: input] -> [output: out];
}

impl Operands for CatOpIr {
    fn arguments(&self) -> Arguments<'_> {
        let outputs = Tensors::new(field_names!(output), [Some(&self.out)]);
        Arguments { inputs: Tensors::without_names(&self.tensors), outputs, ..Arguments::NONE }
    }
}

impl Operands for CustomOpIr {
    fn arguments(&self) -> Arguments<'_> {
        let (inputs, outputs) = (Tensors::without_names(&self.inputs), Tensors::without_names(&self.outputs));
        Arguments { inputs, outputs, id: &self.id, ..Arguments::NONE }
    }
}

/// The operation that drops this tensor.
impl Operands for TensorIr {
    fn arguments(&self) -> Arguments<'_> {
        Arguments { inputs: Tensors::new(field_names!(input), [Some(self)]), ..Arguments::NONE }
    }
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |product: u64, &size| product.saturating_mul(size as u64))
}

/// Returns the number of input elements that contribute to an output element; 0 if one is copied.
fn neighbours(mode: &InterpolateModeIr) -> u64 {
    match mode {
        InterpolateModeIr::Nearest | InterpolateModeIr::NearestExact => 0,
        InterpolateModeIr::Bilinear => 4,
        InterpolateModeIr::Bicubic => 16,
        InterpolateModeIr::Lanczos3 => 36,
    }
}

/// Returns the number of operations per updated element.
fn ops_per_update(update: &IndexingUpdateOp) -> u64 {
    match update {
        IndexingUpdateOp::Assign => 0,
        IndexingUpdateOp::Add | IndexingUpdateOp::Mul | IndexingUpdateOp::Min | IndexingUpdateOp::Max => 1,
    }
}
