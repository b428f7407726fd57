use super::{arguments::Arguments, cost::*, operands::Operands};
use burn::backend::ir::{
    ActivationOperationIr, BaseOperationIr, BoolOperationIr, DistributedOperationIr, FloatOperationIr, IntOperationIr,
    ModuleOperationIr, NumericOperationIr, OperationIr,
};

/// Makes a static [`OperationKind`] and returns a reference to it.
macro_rules! kind {
    ($name:literal, $formula:path, $storage:ident) => {{
        static KIND: OperationKind = OperationKind { name: $name, formula: $formula, storage: Storage::$storage };
        &KIND
    }};
}

/// The properties of one of Burn's operations that do not depend on its arguments. There is one value for each
/// operation, so kinds are compared by address.
#[derive(Debug)]
pub(crate) struct OperationKind {
    /// The name of Burn's function.
    pub(crate) name: &'static str,
    formula: Formula,
    pub(crate) storage: Storage,
}

/// The memory that an operation's output uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// New memory.
    New,
    /// The memory of an input that is not needed any more, if it fits; else new memory.
    InPlace,
    /// The memory of the first input, which the output shares.
    View,
    /// The memory of the first input if no element has to be moved, as for some slices and casts; else new memory.
    MaybeView,
}

impl OperationKind {
    /// Returns the kind and the arguments of an operation.
    pub(crate) fn of(operation: &OperationIr) -> (&'static Self, Arguments<'_>) {
        match operation {
            OperationIr::BaseFloat(base) | OperationIr::BaseInt(base) | OperationIr::BaseBool(base) => of_base(base),
            OperationIr::NumericFloat(_, numeric) | OperationIr::NumericInt(_, numeric) => of_numeric(numeric),
            OperationIr::Bool(bool) => of_bool(bool),
            OperationIr::Int(int) => of_int(int),
            OperationIr::Float(_, float) => of_float(float),
            OperationIr::Module(module) => of_module(module),
            OperationIr::Activation(activation) => of_activation(activation),
            OperationIr::Init(init) => (kind!("from_data", data_movement, New), init.arguments()),
            OperationIr::Custom(custom) => (kind!("custom", unknown, New), custom.arguments()),
            OperationIr::Drop(tensor) => (kind!("drop", no_cost, New), tensor.arguments()),
            OperationIr::Distributed(DistributedOperationIr::AllReduce(all_reduce)) => {
                (kind!("all_reduce", unknown, InPlace), all_reduce.arguments())
            }
            OperationIr::Distributed(DistributedOperationIr::SyncCollective) => {
                (kind!("sync_collective", no_cost, New), Arguments::NONE)
            }
        }
    }

    pub(super) fn cost(&self, arguments: &Arguments<'_>) -> Cost {
        (self.formula)(arguments)
    }
}

/// Defines a function that maps all variants of one of Burn's enums to their kinds, listed by formula and storage.
macro_rules! variants {
    ($of:ident: $kind:ident; $($formula:path, $storage:ident { $($variant:ident $name:literal)* })*) => {
        fn $of(operation: &$kind) -> (&'static OperationKind, Arguments<'_>) {
            match operation {
                $($($kind::$variant(ir) => (kind!($name, $formula, $storage), ir.arguments()),)*)*
            }
        }
    };
}

variants! { of_base: BaseOperationIr;
    no_cost, View {
        Reshape "reshape" SwapDims "swap_dims" Permute "permute" Expand "expand" Unfold "unfold"
    }
    gather, MaybeView {
        Slice "slice"
    }
    gather, New {
        Select "select" Gather "gather" GatherNd "gather_nd"
    }
    scatter, InPlace {
        SliceAssign "slice_assign" SelectAssign "select_assign" Scatter "scatter" ScatterNd "scatter_nd"
    }
    data_movement, InPlace {
        MaskWhere "mask_where" MaskFill "mask_fill"
    }
    data_movement, MaybeView {
        Cast "cast"
    }
    data_movement, New {
        Flip "flip" RepeatDim "repeat_dim" Cat "cat" Ones "ones" Zeros "zeros"
        Equal "equal" EqualElem "equal_elem" NotEqual "not_equal" NotEqualElem "not_equal_elem"
        All "all" Any "any" AllDim "all_dim" AnyDim "any_dim"
    }
    no_cost, New {
        Empty "empty"
    }
}

variants! { of_numeric: NumericOperationIr;
    elementwise::<1>, InPlace {
        Add "add" AddScalar "add_scalar" Sub "sub" SubScalar "sub_scalar" Mul "mul" MulScalar "mul_scalar"
        Div "div" DivScalar "div_scalar" Rem "remainder" RemScalar "remainder_scalar"
        Abs "abs" Neg "neg" Sign "sign" Powi "powi" PowiScalar "powi_scalar"
        Clamp "clamp" ClampMin "clamp_min" ClampMax "clamp_max"
    }
    elementwise::<1>, New {
        CumSum "cumsum" CumProd "cumprod" CumMin "cummin" CumMax "cummax"
    }
    reduction, New {
        Sum "sum" SumDim "sum_dim" SumDims "sum_dims" Mean "mean" MeanDim "mean_dim" Prod "prod" ProdDim "prod_dim"
        Max "max" MaxDim "max_dim" MaxDimWithIndices "max_dim_with_indices" MaxAbs "max_abs" MaxAbsDim "max_abs_dim"
        Min "min" MinDim "min_dim" MinDimWithIndices "min_dim_with_indices"
    }
    data_movement, New {
        Full "full" IntRandom "random" Pad "pad"
        Greater "greater" GreaterElem "greater_elem" GreaterEqual "greater_equal" GreaterEqualElem "greater_equal_elem"
        Lower "lower" LowerElem "lower_elem" LowerEqual "lower_equal" LowerEqualElem "lower_equal_elem"
        ArgMax "argmax" ArgMin "argmin" ArgTopK "argtopk" TopK "topk" TopKWithIndices "topk_with_indices"
        Sort "sort" SortWithIndices "sort_with_indices" ArgSort "argsort"
    }
}

variants! { of_float: FloatOperationIr;
    elementwise::<1>, InPlace {
        Exp "exp" Log "log" Log1p "log1p" Erf "erf" Sqrt "sqrt" Recip "recip"
        Powf "powf" PowfScalar "powf_scalar" Hypot "hypot"
        Cos "cos" Cosh "cosh" Sin "sin" Sinh "sinh" Tan "tan" Tanh "tanh"
        ArcCos "acos" ArcCosh "acosh" ArcSin "asin" ArcSinh "asinh" ArcTan "atan" ArcTanh "atanh" ArcTan2 "atan2"
        Round "round" Floor "floor" Ceil "ceil" Trunc "trunc"
    }
    elementwise::<1>, New {
        Quantize "quantize" Dequantize "dequantize"
    }
    elementwise::<3>, New {
        Cross "cross"
    }
    matmul, New {
        Matmul "matmul"
    }
    interpolation, New {
        GridSample2d "grid_sample_2d"
    }
    data_movement, New {
        IntoInt "into_int" Random "random" IsNan "is_nan" IsInf "is_inf"
    }
}

variants! { of_int: IntOperationIr;
    data_movement, InPlace {
        BitwiseAnd "bitwise_and" BitwiseAndScalar "bitwise_and_scalar" BitwiseOr "bitwise_or"
        BitwiseOrScalar "bitwise_or_scalar" BitwiseXor "bitwise_xor" BitwiseXorScalar "bitwise_xor_scalar"
        BitwiseNot "bitwise_not" BitwiseLeftShift "bitwise_left_shift"
        BitwiseLeftShiftScalar "bitwise_left_shift_scalar"
        BitwiseRightShift "bitwise_right_shift" BitwiseRightShiftScalar "bitwise_right_shift_scalar"
    }
    data_movement, New {
        IntoFloat "into_float"
    }
    matmul, New {
        Matmul "matmul"
    }
}

variants! { of_bool: BoolOperationIr;
    data_movement, New {
        IntoFloat "into_float" IntoInt "into_int"
    }
    data_movement, InPlace {
        Not "bool_not" And "bool_and" Or "bool_or" Xor "bool_xor"
    }
}

variants! { of_activation: ActivationOperationIr;
    elementwise::<1>, InPlace {
        Relu "relu" LeakyRelu "leaky_relu" PRelu "prelu" Gelu "gelu"
        Sigmoid "sigmoid" HardSigmoid "hard_sigmoid" LogSigmoid "log_sigmoid"
    }
    elementwise::<2>, InPlace {
        ReluBackward "relu_backward" GeluBackward "gelu_backward" SigmoidBackward "sigmoid_backward"
        LogSigmoidBackward "log_sigmoid_backward"
    }
    elementwise::<5>, New {
        Softmax "softmax" LogSoftmax "log_softmax"
    }
    elementwise::<6>, New {
        Softmin "softmin"
    }
}

variants! { of_module: ModuleOperationIr;
    linear, New {
        Linear "linear"
    }
    linear_x_backward, New {
        LinearXBackward "linear_x_backward"
    }
    linear_weight_backward, New {
        LinearWeightBackward "linear_weight_backward"
    }
    convolution, New {
        Conv1d "conv1d" Conv2d "conv2d" Conv3d "conv3d" DeformableConv2d "deform_conv2d"
    }
    convolution_backward, New {
        Conv1dXBackward "conv1d_x_backward" Conv1dWeightBackward "conv1d_weight_backward"
        Conv2dXBackward "conv2d_x_backward" Conv2dWeightBackward "conv2d_weight_backward"
        Conv3dXBackward "conv3d_x_backward" Conv3dWeightBackward "conv3d_weight_backward"
    }
    deformable_convolution_backward, New {
        DeformableConv2dBackward "deform_conv2d_backward"
    }
    transposed_convolution, New {
        ConvTranspose1d "conv_transpose1d" ConvTranspose2d "conv_transpose2d" ConvTranspose3d "conv_transpose3d"
    }
    transposed_convolution_weight_backward, New {
        ConvTranspose1dWeightBackward "conv_transpose1d_weight_backward"
        ConvTranspose2dWeightBackward "conv_transpose2d_weight_backward"
        ConvTranspose3dWeightBackward "conv_transpose3d_weight_backward"
    }
    bias_backward, New {
        LinearBiasBackward "linear_bias_backward" Conv1dBiasBackward "conv1d_bias_backward"
        Conv2dBiasBackward "conv2d_bias_backward" Conv3dBiasBackward "conv3d_bias_backward"
        ConvTranspose1dBiasBackward "conv_transpose1d_bias_backward"
        ConvTranspose2dBiasBackward "conv_transpose2d_bias_backward"
        ConvTranspose3dBiasBackward "conv_transpose3d_bias_backward"
    }
    pooling, New {
        AvgPool1d "avg_pool1d" AvgPool2d "avg_pool2d" MaxPool1d "max_pool1d" MaxPool2d "max_pool2d"
        MaxPool1dWithIndices "max_pool1d_with_indices" MaxPool2dWithIndices "max_pool2d_with_indices"
    }
    pooling_backward, New {
        AvgPool1dBackward "avg_pool1d_backward" AvgPool2dBackward "avg_pool2d_backward"
        MaxPool1dWithIndicesBackward "max_pool1d_with_indices_backward"
        MaxPool2dWithIndicesBackward "max_pool2d_with_indices_backward"
        EmbeddingBackward "embedding_backward"
    }
    adaptive_pooling, New {
        AdaptiveAvgPool1d "adaptive_avg_pool1d" AdaptiveAvgPool2d "adaptive_avg_pool2d"
        AdaptiveAvgPool3d "adaptive_avg_pool3d"
    }
    adaptive_pooling_backward, New {
        AdaptiveAvgPool1dBackward "adaptive_avg_pool1d_backward"
        AdaptiveAvgPool2dBackward "adaptive_avg_pool2d_backward"
        AdaptiveAvgPool3dBackward "adaptive_avg_pool3d_backward"
    }
    interpolation, New {
        Interpolate "interpolate"
    }
    interpolation_backward, New {
        InterpolateBackward "interpolate_backward"
    }
    elementwise::<4>, New {
        BatchNorm "batch_norm"
    }
    layer_norm, New {
        LayerNorm "layer_norm"
    }
    attention, New {
        Attention "attention"
    }
    gather, New {
        Embedding "embedding"
    }
    data_movement, New {
        Unfold4d "unfold4d"
    }
    unknown, New {
        CtcLoss "ctc_loss" CtcLossBackward "ctc_loss_backward"
    }
}
