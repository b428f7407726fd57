//! A sample of each of Burn's operations. This file does not compile when Burn adds one.

use burn::{
    backend::{distributed::ReduceOperation, ir::*},
    tensor::{DType, Distribution, IndexingUpdateOp, Shape, quantization::QuantScheme},
};
use std::sync::atomic::{AtomicU64, Ordering};

pub(super) fn every() -> Vec<OperationIr> {
    let samples = [
        every_base().into_iter().map(OperationIr::BaseFloat).collect::<Vec<_>>(),
        every_numeric().into_iter().map(|numeric| OperationIr::NumericFloat(DType::F32, numeric)).collect(),
        every_bool().into_iter().map(OperationIr::Bool).collect(),
        every_int().into_iter().map(OperationIr::Int).collect(),
        every_float().into_iter().map(|float| OperationIr::Float(DType::F32, float)).collect(),
        every_module().into_iter().map(OperationIr::Module).collect(),
        every_activation().into_iter().map(OperationIr::Activation).collect(),
        vec![
            OperationIr::Init(init()),
            OperationIr::Custom(custom()),
            OperationIr::Drop(tensor()),
            OperationIr::Distributed(DistributedOperationIr::AllReduce(all_reduce())),
            OperationIr::Distributed(DistributedOperationIr::SyncCollective),
        ],
    ];
    samples.into_iter().flatten().collect()
}

fn tensor() -> TensorIr {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    TensorIr::uninit(TensorId::new(NEXT.fetch_add(1, Ordering::Relaxed)), Shape::new([2, 3]), DType::F32)
}

macro_rules! samples {
    ($($name:ident: $kind:ident [$($tensor:ident),*] { $($field:ident: $value:expr),* })*) => {
        $(fn $name() -> $kind {
            $kind { $($tensor: tensor(),)* $($field: $value),* }
        })*
    };
}

samples! {
    adaptive_avg_pool1d: AdaptiveAvgPool1dOpIr [x, out] { output_size: 1 }
    adaptive_avg_pool1d_backward: AdaptiveAvgPool1dBackwardOpIr [x, grad, out] {}
    adaptive_avg_pool2d: AdaptiveAvgPool2dOpIr [x, out] { output_size: [1, 1] }
    adaptive_avg_pool2d_backward: AdaptiveAvgPool2dBackwardOpIr [x, grad, out] {}
    adaptive_avg_pool3d: AdaptiveAvgPool3dOpIr [x, out] { output_size: [1, 1, 1] }
    adaptive_avg_pool3d_backward: AdaptiveAvgPool3dBackwardOpIr [x, grad, out] {}
    all_reduce: AllReduceOpIr [tensor, out] { op: ReduceOperation::Sum, device_ids: Vec::new() }
    attention: AttentionOpIr [query, key, value, out] {
        mask: Some(tensor()),
        attn_bias: Some(tensor()),
        options: AttentionOptionsIr { scale: None, softcap: None, is_causal: true }
    }
    avg_pool1d: AvgPool1dOpIr [x, out] {
        kernel_size: 2, stride: 1, padding: 0, count_include_pad: true, ceil_mode: false
    }
    avg_pool1d_backward: AvgPool1dBackwardOpIr [x, grad, out] {
        kernel_size: 2, stride: 1, padding: 0, count_include_pad: true, ceil_mode: false
    }
    avg_pool2d: AvgPool2dOpIr [x, out] {
        kernel_size: [2, 2], stride: [1, 1], padding: [0, 0], count_include_pad: true, ceil_mode: false
    }
    avg_pool2d_backward: AvgPool2dBackwardOpIr [x, grad, out] {
        kernel_size: [2, 2], stride: [1, 1], padding: [0, 0], count_include_pad: true, ceil_mode: false
    }
    batch_norm: BatchNormOpIr [x, gamma, beta, mean, variance, out] { epsilon: ScalarIr::Float(1e-5) }
    binary: BinaryOpIr [lhs, rhs, out] {}
    cast: CastOpIr [input, out] {}
    cat: CatOpIr [out] { tensors: vec![tensor(), tensor(), tensor()], dim: 0 }
    clamp: ClampOpIr [tensor, out] { min: ScalarIr::Int(0), max: ScalarIr::Int(1) }
    conv1d: Conv1dOpIr [x, weight, out] { bias: Some(tensor()), options: conv1d_options() }
    conv1d_bias_backward: Conv1dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv1d_options: Conv1dOptionsIr [] { stride: [1], padding: [(0, 0)], dilation: [1], groups: 1 }
    conv1d_weight_backward: Conv1dWeightBackwardOpIr [x, weight, output_grad, out] { options: conv1d_options() }
    conv1d_x_backward: Conv1dXBackwardOpIr [x, weight, output_grad, out] { options: conv1d_options() }
    conv2d: Conv2dOpIr [x, weight, out] { bias: None, options: conv2d_options() }
    conv2d_bias_backward: Conv2dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv2d_options: Conv2dOptionsIr [] { stride: [1; 2], padding: [(0, 0); 2], dilation: [1; 2], groups: 1 }
    conv2d_weight_backward: Conv2dWeightBackwardOpIr [x, weight, output_grad, out] { options: conv2d_options() }
    conv2d_x_backward: Conv2dXBackwardOpIr [x, weight, output_grad, out] { options: conv2d_options() }
    conv3d: Conv3dOpIr [x, weight, out] { bias: Some(tensor()), options: conv3d_options() }
    conv3d_bias_backward: Conv3dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv3d_options: Conv3dOptionsIr [] { stride: [1; 3], padding: [0; 3], dilation: [1; 3], groups: 1 }
    conv3d_weight_backward: Conv3dWeightBackwardOpIr [x, weight, output_grad, out] { options: conv3d_options() }
    conv3d_x_backward: Conv3dXBackwardOpIr [x, weight, output_grad, out] { options: conv3d_options() }
    conv_transpose1d: ConvTranspose1dOpIr [x, weight, out] { bias: Some(tensor()), options: transposed1d_options() }
    conv_transpose1d_bias_backward: ConvTranspose1dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv_transpose1d_weight_backward: ConvTranspose1dWeightBackwardOpIr [x, weight, output_grad, out] {
        options: transposed1d_options()
    }
    conv_transpose2d: ConvTranspose2dOpIr [x, weight, out] { bias: None, options: transposed2d_options() }
    conv_transpose2d_bias_backward: ConvTranspose2dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv_transpose2d_weight_backward: ConvTranspose2dWeightBackwardOpIr [x, weight, output_grad, out] {
        options: transposed2d_options()
    }
    conv_transpose3d: ConvTranspose3dOpIr [x, weight, out] { bias: Some(tensor()), options: transposed3d_options() }
    conv_transpose3d_bias_backward: ConvTranspose3dBiasBackwardOpIr [x, bias, output_grad, out] {}
    conv_transpose3d_weight_backward: ConvTranspose3dWeightBackwardOpIr [x, weight, output_grad, out] {
        options: transposed3d_options()
    }
    creation: CreationOpIr [out] {}
    cross: CrossOpIr [lhs, rhs, out] { dim: 1 }
    ctc_loss: CtcLossOpIr [log_probs, targets, input_lengths, target_lengths, out] { blank: 0 }
    ctc_loss_backward: CtcLossBackwardOpIr [log_probs, targets, input_lengths, target_lengths, grad_loss, out] {
        blank: 0
    }
    custom: CustomOpIr [] {
        id: "mine".to_owned(), inputs: vec![tensor(); 9], outputs: vec![tensor(), tensor()], scalars: Vec::new()
    }
    deform_conv2d: DeformConv2dOpIr [x, offset, weight, out] {
        mask: Some(tensor()), bias: None, options: deform_options()
    }
    deform_conv2d_backward: DeformConv2dBackwardOpIr [
        x, offset, weight, out_grad, input_grad, offset_grad, weight_grad
    ] {
        mask: Some(tensor()),
        bias: Some(tensor()),
        options: deform_options(),
        mask_grad: Some(tensor()),
        bias_grad: Some(tensor())
    }
    deform_options: DeformableConv2dOptionsIr [] {
        stride: [1; 2], padding: [0; 2], dilation: [1; 2], weight_groups: 1, offset_groups: 1
    }
    dequantize: DequantizeOpIr [input, out] {}
    dim: DimOpIr [input, out] { axis: 0 }
    embedding: EmbeddingOpIr [weights, indices, out] {}
    embedding_backward: EmbeddingBackwardOpIr [weights, out_grad, indices, out] {}
    flip: FlipOpIr [input, out] { axes: vec![0] }
    full: FullOpIr [out] { value: ScalarIr::Float(1.0) }
    gather: GatherOpIr [tensor, indices, out] { dim: 0 }
    gather_nd: GatherNdOpIr [data, indices, out] {}
    grid_sample: GridSample2dOpIr [tensor, grid, out] {
        options: GridSampleOptionsIr {
            mode: InterpolateModeIr::Bilinear,
            padding_mode: GridSamplePaddingModeIr::Zeros,
            align_corners: false
        }
    }
    hard_sigmoid: HardSigmoidOpIr [tensor, out] { alpha: ScalarIr::Float(0.2), beta: ScalarIr::Float(0.5) }
    init: InitOperationIr [out] {}
    interpolate: InterpolateOpIr [x, out] { output_size: [4, 4], options: interpolate_options() }
    interpolate_backward: InterpolateBackwardOpIr [x, grad, out] { output_size: [4, 4], options: interpolate_options() }
    interpolate_options: InterpolateOptionsIr [] { mode: InterpolateModeIr::Bicubic, align_corners: false }
    layer_norm: LayerNormOpIr [input, gamma, out] { beta: Some(tensor()), epsilon: ScalarIr::Float(1e-5) }
    linear: LinearOpIr [x, weight, out] { bias: Some(tensor()) }
    linear_bias_backward: LinearBiasBackwardOpIr [output_grad, out] {}
    linear_weight_backward: LinearWeightBackwardOpIr [x, output_grad, out] {}
    linear_x_backward: LinearXBackwardOpIr [weight, output_grad, out] {}
    mask_fill: MaskFillOpIr [tensor, mask, out] { value: ScalarIr::Float(0.0) }
    mask_where: MaskWhereOpIr [tensor, mask, value, out] {}
    matmul: MatmulOpIr [lhs, rhs, out] {}
    max_pool1d: MaxPool1dOpIr [x, out] { kernel_size: 2, stride: 1, padding: 0, dilation: 1, ceil_mode: false }
    max_pool1d_with_indices: MaxPool1dWithIndicesOpIr [x, out, out_indices] {
        kernel_size: 2, stride: 1, padding: 0, dilation: 1, ceil_mode: false
    }
    max_pool1d_with_indices_backward: MaxPool1dWithIndicesBackwardOpIr [x, grad, indices, out] {
        kernel_size: 2, stride: 1, padding: 0, dilation: 1, ceil_mode: false
    }
    max_pool2d: MaxPool2dOpIr [x, out] {
        kernel_size: [2; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false
    }
    max_pool2d_with_indices: MaxPool2dWithIndicesOpIr [x, out, out_indices] {
        kernel_size: [2; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false
    }
    max_pool2d_with_indices_backward: MaxPool2dWithIndicesBackwardOpIr [x, grad, indices, out] {
        kernel_size: [2; 2], stride: [1; 2], padding: [0; 2], dilation: [1; 2], ceil_mode: false
    }
    pad: PadOpIr [input, out] { padding: vec![(0, 1)], mode: PadModeIr::Edge }
    permute: PermuteOpIr [input, out] { axes: vec![1, 0] }
    quantize: QuantizeOpIr [tensor, out] {
        qparams: QuantizationParametersIr { scales: tensor(), global: Some(tensor()) },
        scheme: QuantScheme::default()
    }
    random: RandomOpIr [out] { distribution: Distribution::Default }
    reduce: ReduceOpIr [input, out] {}
    reduce_dim: ReduceDimOpIr [input, out] { axis: 0, accumulator_len: 1 }
    reduce_dim_with_indices: ReduceDimWithIndicesOpIr [tensor, out, out_indices] { dim: 0 }
    reduce_dims: ReduceDimsOpIr [input, out] { axes: vec![0] }
    repeat_dim: RepeatDimOpIr [tensor, out] { dim: 0, times: 2 }
    scalar: ScalarOpIr [lhs, out] { rhs: ScalarIr::Float(2.0) }
    scatter: ScatterOpIr [tensor, indices, value, out] { dim: 0, update: IndexingUpdateOp::Add }
    scatter_nd: ScatterNdOpIr [data, indices, values, out] { reduction: IndexingUpdateOp::Max }
    select: SelectOpIr [tensor, indices, out] { dim: 0 }
    select_assign: SelectAssignOpIr [tensor, indices, value, out] { dim: 0, update: IndexingUpdateOp::Assign }
    shape: ShapeOpIr [input, out] {}
    slice: SliceOpIr [tensor, out] { ranges: Vec::new() }
    slice_assign: SliceAssignOpIr [tensor, value, out] { ranges: Vec::new() }
    sort: SortOpIr [input, out] { dim: 0, descending: false }
    sort_with_indices: SortWithIndicesOpIr [input, out, out_indices] { dim: 0, descending: false }
    swap_dims: SwapDimsOpIr [input, out] { dim1: 0, dim2: 1 }
    topk_with_indices: TopKWithIndicesOpIr [tensor, out, out_indices] { dim: 0, k: 1 }
    transposed1d_options: ConvTranspose1dOptionsIr [] {
        stride: [1], padding: [0], padding_out: [0], dilation: [1], groups: 1
    }
    transposed2d_options: ConvTranspose2dOptionsIr [] {
        stride: [1; 2], padding: [0; 2], padding_out: [0; 2], dilation: [1; 2], groups: 1
    }
    transposed3d_options: ConvTranspose3dOptionsIr [] {
        stride: [1; 3], padding: [0; 3], padding_out: [0; 3], dilation: [1; 3], groups: 1
    }
    unary: UnaryOpIr [input, out] {}
    unfold: UnfoldOpIr [input, out] { dim: 0, size: 1, step: 1 }
    unfold4d: Unfold4dOpIr [x, out] {
        kernel_size: [2; 2], options: Unfold4dOptionsIr { stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }
}

fn boxed_deform_conv2d() -> Box<DeformConv2dOpIr> {
    Box::new(deform_conv2d())
}

fn boxed_deform_conv2d_backward() -> Box<DeformConv2dBackwardOpIr> {
    Box::new(deform_conv2d_backward())
}

macro_rules! every {
    ($every:ident: $kind:ident; $($sample:ident { $($variant:ident)* })*) => {
        fn $every() -> Vec<$kind> {
            let _ = |operation: &$kind| match operation { $($($kind::$variant(_))|*)|* => () };
            vec![$($($kind::$variant($sample())),*),*]
        }
    };
}

every! { every_base: BaseOperationIr;
    shape { Reshape Expand } swap_dims { SwapDims } permute { Permute } flip { Flip } unfold { Unfold } slice { Slice }
    slice_assign { SliceAssign } select { Select } select_assign { SelectAssign } mask_where { MaskWhere }
    mask_fill { MaskFill } gather { Gather } scatter { Scatter } scatter_nd { ScatterNd } gather_nd { GatherNd }
    binary { Equal NotEqual } scalar { EqualElem NotEqualElem } repeat_dim { RepeatDim } cat { Cat } cast { Cast }
    creation { Empty Ones Zeros } reduce { All Any } reduce_dim { AllDim AnyDim }
}

every! { every_numeric: NumericOperationIr;
    binary { Add Sub Div Rem Mul Greater GreaterEqual Lower LowerEqual Powi }
    scalar {
        AddScalar SubScalar DivScalar RemScalar MulScalar GreaterElem GreaterEqualElem LowerElem LowerEqualElem
        PowiScalar ClampMin ClampMax
    }
    unary { Abs Neg Sign } full { Full } clamp { Clamp } random { IntRandom } pad { Pad }
    reduce { Mean Sum Prod Max Min MaxAbs } reduce_dims { SumDims }
    reduce_dim { MeanDim SumDim ProdDim ArgMax ArgTopK TopK ArgMin MaxDim MinDim MaxAbsDim }
    reduce_dim_with_indices { MaxDimWithIndices MinDimWithIndices } topk_with_indices { TopKWithIndices }
    dim { CumSum CumProd CumMin CumMax } sort { Sort ArgSort } sort_with_indices { SortWithIndices }
}

every! { every_float: FloatOperationIr;
    unary {
        Exp Log Log1p Erf Sqrt Cos Cosh Sin Sinh Tan Tanh ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTanh Round Floor Ceil
        Trunc Recip IsNan IsInf
    }
    binary { ArcTan2 Powf Hypot } scalar { PowfScalar } cast { IntoInt } matmul { Matmul } cross { Cross }
    random { Random } quantize { Quantize } dequantize { Dequantize } grid_sample { GridSample2d }
}

every! { every_int: IntOperationIr;
    cast { IntoFloat } binary { BitwiseAnd BitwiseOr BitwiseXor BitwiseLeftShift BitwiseRightShift }
    scalar { BitwiseAndScalar BitwiseOrScalar BitwiseXorScalar BitwiseLeftShiftScalar BitwiseRightShiftScalar }
    unary { BitwiseNot } matmul { Matmul }
}

every! { every_bool: BoolOperationIr;
    cast { IntoFloat IntoInt } unary { Not } binary { And Or Xor }
}

every! { every_activation: ActivationOperationIr;
    unary { Relu Gelu Sigmoid LogSigmoid } binary { ReluBackward PRelu GeluBackward SigmoidBackward LogSigmoidBackward }
    scalar { LeakyRelu } hard_sigmoid { HardSigmoid } dim { Softmax LogSoftmax Softmin }
}

every! { every_module: ModuleOperationIr;
    batch_norm { BatchNorm } embedding { Embedding } embedding_backward { EmbeddingBackward } linear { Linear }
    linear_x_backward { LinearXBackward } linear_weight_backward { LinearWeightBackward }
    linear_bias_backward { LinearBiasBackward } conv1d { Conv1d } conv1d_x_backward { Conv1dXBackward }
    conv1d_weight_backward { Conv1dWeightBackward } conv1d_bias_backward { Conv1dBiasBackward } conv2d { Conv2d }
    conv2d_x_backward { Conv2dXBackward } conv2d_weight_backward { Conv2dWeightBackward }
    conv2d_bias_backward { Conv2dBiasBackward } conv3d { Conv3d } conv3d_x_backward { Conv3dXBackward }
    conv3d_weight_backward { Conv3dWeightBackward } conv3d_bias_backward { Conv3dBiasBackward }
    boxed_deform_conv2d { DeformableConv2d } boxed_deform_conv2d_backward { DeformableConv2dBackward }
    conv_transpose1d { ConvTranspose1d } conv_transpose2d { ConvTranspose2d } conv_transpose3d { ConvTranspose3d }
    avg_pool1d { AvgPool1d } avg_pool2d { AvgPool2d } avg_pool1d_backward { AvgPool1dBackward }
    avg_pool2d_backward { AvgPool2dBackward } adaptive_avg_pool1d { AdaptiveAvgPool1d }
    adaptive_avg_pool2d { AdaptiveAvgPool2d } adaptive_avg_pool3d { AdaptiveAvgPool3d }
    adaptive_avg_pool1d_backward { AdaptiveAvgPool1dBackward }
    adaptive_avg_pool2d_backward { AdaptiveAvgPool2dBackward }
    adaptive_avg_pool3d_backward { AdaptiveAvgPool3dBackward } max_pool1d { MaxPool1d }
    max_pool1d_with_indices { MaxPool1dWithIndices } max_pool1d_with_indices_backward { MaxPool1dWithIndicesBackward }
    max_pool2d { MaxPool2d } max_pool2d_with_indices { MaxPool2dWithIndices }
    max_pool2d_with_indices_backward { MaxPool2dWithIndicesBackward } interpolate { Interpolate }
    interpolate_backward { InterpolateBackward } attention { Attention } ctc_loss { CtcLoss }
    ctc_loss_backward { CtcLossBackward } layer_norm { LayerNorm } unfold4d { Unfold4d }
    conv_transpose1d_weight_backward { ConvTranspose1dWeightBackward }
    conv_transpose1d_bias_backward { ConvTranspose1dBiasBackward }
    conv_transpose2d_weight_backward { ConvTranspose2dWeightBackward }
    conv_transpose2d_bias_backward { ConvTranspose2dBiasBackward }
    conv_transpose3d_weight_backward { ConvTranspose3dWeightBackward }
    conv_transpose3d_bias_backward { ConvTranspose3dBiasBackward }
}
