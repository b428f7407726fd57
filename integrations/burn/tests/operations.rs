//! What Burn's operations are said to be, against values worked out by hand.

mod ir;

use burn::{
    backend::ir::*,
    tensor::{
        DType, IndexingUpdateOp, Shape,
        quantization::{QuantScheme, QuantStore, QuantValue},
    },
};
use ir::{binary, numeric, scalar, tensor, tensor_of, unary};
use kernspan::trace::Value;
use kernspan_burn::{Description, flops};

fn matmul(lhs: &[usize], rhs: &[usize], out: &[usize]) -> OperationIr {
    let ir = MatmulOpIr { lhs: tensor(lhs), rhs: tensor(rhs), out: tensor(out) };
    OperationIr::Float(DType::F32, FloatOperationIr::Matmul(ir))
}

fn module(operation: ModuleOperationIr) -> Option<u64> {
    flops(&OperationIr::Module(operation))
}

fn gemm(operation: &OperationIr) -> Option<String> {
    Some(Description::of(operation).field("op.gemm")?.as_str()?.to_owned())
}

fn bytes(operation: &OperationIr) -> u64 {
    Description::of(operation).field("op.bytes").and_then(Value::as_u64).unwrap()
}

fn reduced(dims: &[usize], out: &[usize]) -> ReduceDimOpIr {
    ReduceDimOpIr { input: tensor(dims), out: tensor(out), axis: 1, accumulator_len: 1 }
}

#[test]
fn products() {
    let one = matmul(&[8, 16], &[16, 32], &[8, 32]);
    assert_eq!((flops(&one), gemm(&one).as_deref()), (Some(2 * 8 * 32 * 16), Some("8x32x16")));
    assert_eq!(bytes(&one), 4 * (8 * 16 + 16 * 32 + 8 * 32));
    // A batch of 3 · 5, each of its own matrices.
    let batch = matmul(&[3, 5, 8, 16], &[3, 5, 16, 32], &[3, 5, 8, 32]);
    assert_eq!((flops(&batch), gemm(&batch).as_deref()), (Some(15 * 2 * 8 * 32 * 16), Some("8x32x16")));
    // With the same matrix on the right it is one product.
    let right = matmul(&[3, 5, 8, 16], &[1, 1, 16, 32], &[3, 5, 8, 32]);
    assert_eq!((flops(&right), gemm(&right).as_deref()), (flops(&batch), Some("120x32x16")));
    // With the same on the left it is not.
    let left = matmul(&[1, 8, 16], &[5, 16, 32], &[5, 8, 32]);
    assert_eq!((flops(&left), gemm(&left).as_deref()), (Some(5 * 2 * 8 * 32 * 16), Some("8x32x16")));
}

#[test]
fn products_of_integers_are_no_floating_point_operations() {
    let of = |dims: &[usize]| tensor_of(dims, DType::I32);
    let ir = MatmulOpIr { lhs: of(&[8, 16]), rhs: of(&[16, 32]), out: of(&[8, 32]) };
    let operation = OperationIr::Int(IntOperationIr::Matmul(ir));
    assert_eq!((flops(&operation), gemm(&operation).as_deref()), (Some(0), Some("8x32x16")));
    let ir = BinaryOpIr { lhs: of(&[8]), rhs: of(&[8]), out: of(&[8]) };
    assert_eq!(flops(&OperationIr::NumericInt(DType::I32, NumericOperationIr::Add(ir))), Some(0));
}

#[test]
fn linear() {
    // Each of 5 · 3 rows: 7 numbers, each a sum of 4 products, and a bias.
    let ir = |bias| LinearOpIr { x: tensor(&[5, 3, 4]), weight: tensor(&[4, 7]), bias, out: tensor(&[5, 3, 7]) };
    let products = 5 * 3 * 7 * (2 * 4);
    assert_eq!(module(ModuleOperationIr::Linear(ir(None))), Some(products));
    let biased = OperationIr::Module(ModuleOperationIr::Linear(ir(Some(tensor(&[7])))));
    assert_eq!((flops(&biased), gemm(&biased).as_deref()), (Some(products + 5 * 3 * 7), Some("15x7x4")));

    let grad = || tensor(&[5, 3, 7]);
    let of_input = LinearXBackwardOpIr { weight: tensor(&[4, 7]), output_grad: grad(), out: tensor(&[5, 3, 4]) };
    let of_input = OperationIr::Module(ModuleOperationIr::LinearXBackward(of_input));
    assert_eq!((flops(&of_input), gemm(&of_input).as_deref()), (Some(products), Some("15x4x7")));
    let of_weight = LinearWeightBackwardOpIr { x: tensor(&[5, 3, 4]), output_grad: grad(), out: tensor(&[4, 7]) };
    let of_weight = OperationIr::Module(ModuleOperationIr::LinearWeightBackward(of_weight));
    assert_eq!((flops(&of_weight), gemm(&of_weight).as_deref()), (Some(products), Some("4x7x15")));
    let of_bias = LinearBiasBackwardOpIr { output_grad: grad(), out: tensor(&[7]) };
    assert_eq!(module(ModuleOperationIr::LinearBiasBackward(of_bias)), Some(5 * 3 * 7));
}

#[test]
fn conv1d() {
    // 10 numbers and padding of 1 on both sides, in steps of 2, with a kernel of 3: 5 places. 6 channels out of 4 in 2 groups.
    let options = Conv1dOptionsIr { stride: [2], padding: [(1, 1)], dilation: [1], groups: 2 };
    let (x, weight, out) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let outputs = 2 * 6 * 5;
    let ir = Conv1dOpIr { x, weight, bias: Some(tensor(&[6])), options: options.clone(), out };
    assert_eq!(module(ModuleOperationIr::Conv1d(ir)), Some(outputs * (2 * 2 * 3 + 1)));

    let (x, weight, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let ir = Conv1dXBackwardOpIr { out: x.clone(), x, weight, output_grad, options: options.clone() };
    let operation = OperationIr::Module(ModuleOperationIr::Conv1dXBackward(ir));
    assert_eq!(flops(&operation), Some(outputs * 2 * 2 * 3));
    // The input is not read.
    assert_eq!(bytes(&operation), 4 * (6 * 2 * 3 + outputs + 2 * 4 * 10));
    let (x, weight, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6, 2, 3]), tensor(&[2, 6, 5]));
    let ir = Conv1dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module(ModuleOperationIr::Conv1dWeightBackward(ir)), Some(outputs * 2 * 2 * 3));
    let (x, bias, output_grad) = (tensor(&[2, 4, 10]), tensor(&[6]), tensor(&[2, 6, 5]));
    let ir = Conv1dBiasBackwardOpIr { out: bias.clone(), x, bias, output_grad };
    assert_eq!(module(ModuleOperationIr::Conv1dBiasBackward(ir)), Some(outputs));
}

#[test]
fn conv2d_and_conv3d() {
    // 8 × 8 without padding, with a kernel of 3 × 3: 6 × 6 places.
    let options = Conv2dOptionsIr { stride: [1; 2], padding: [(0, 0); 2], dilation: [1; 2], groups: 1 };
    let (x, weight, out) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 5, 6, 6]));
    let ir = Conv2dOpIr { x, weight, bias: None, options: options.clone(), out };
    assert_eq!(module(ModuleOperationIr::Conv2d(ir)), Some(2 * 5 * 6 * 6 * (2 * 3 * 9)));
    let (x, weight, output_grad) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 5, 6, 6]));
    let ir = Conv2dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module(ModuleOperationIr::Conv2dWeightBackward(ir)), Some(2 * 5 * 6 * 6 * (2 * 3 * 9)));

    let options = Conv3dOptionsIr { stride: [1; 3], padding: [0; 3], dilation: [1; 3], groups: 1 };
    let (x, weight, out) = (tensor(&[1, 2, 4, 4, 4]), tensor(&[3, 2, 2, 2, 2]), tensor(&[1, 3, 3, 3, 3]));
    let ir = Conv3dOpIr { x, weight, bias: Some(tensor(&[3])), options, out };
    assert_eq!(module(ModuleOperationIr::Conv3d(ir)), Some(3 * 27 * (2 * 2 * 8 + 1)));
}

#[test]
fn deformable_convolutions() {
    let options = || DeformableConv2dOptionsIr {
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        weight_groups: 1,
        offset_groups: 1,
    };
    let (x, weight, offset) = (tensor(&[2, 3, 8, 8]), tensor(&[5, 3, 3, 3]), tensor(&[2, 18, 6, 6]));
    let out = tensor(&[2, 5, 6, 6]);
    let (products, outputs) = (2 * 5 * 6 * 6 * (2 * 3 * 9), 2 * 5 * 6 * 6);
    let bias = Some(tensor(&[5]));
    let forward = DeformConv2dOpIr {
        x: x.clone(),
        offset: offset.clone(),
        weight: weight.clone(),
        mask: None,
        bias: bias.clone(),
        options: options(),
        out: out.clone(),
    };
    assert_eq!(module(ModuleOperationIr::DeformableConv2d(Box::new(forward))), Some(products + outputs));
    let backward = DeformConv2dBackwardOpIr {
        input_grad: x.clone(),
        offset_grad: offset.clone(),
        weight_grad: weight.clone(),
        x,
        offset,
        weight,
        mask: None,
        bias: bias.clone(),
        out_grad: out,
        options: options(),
        mask_grad: None,
        bias_grad: bias,
    };
    assert_eq!(module(ModuleOperationIr::DeformableConv2dBackward(Box::new(backward))), Some(2 * products + outputs));
}

#[test]
fn transposed_convolutions() {
    // Each of 2 · 3 · 4 inputs goes to 5 channels, 2 places each: (4 − 1) · 2 + 2 = 8 places come out.
    let options = ConvTranspose1dOptionsIr { stride: [2], padding: [0], padding_out: [0], dilation: [1], groups: 1 };
    let (x, weight, out) = (tensor(&[2, 3, 4]), tensor(&[3, 5, 2]), tensor(&[2, 5, 8]));
    let ir = ConvTranspose1dOpIr { x, weight, bias: Some(tensor(&[5])), options: options.clone(), out };
    assert_eq!(module(ModuleOperationIr::ConvTranspose1d(ir)), Some(2 * (2 * 3 * 4) * 5 * 2 + 2 * 5 * 8));
    let (x, weight, output_grad) = (tensor(&[2, 3, 4]), tensor(&[3, 5, 2]), tensor(&[2, 5, 8]));
    let ir = ConvTranspose1dWeightBackwardOpIr { out: weight.clone(), x, weight, output_grad, options };
    assert_eq!(module(ModuleOperationIr::ConvTranspose1dWeightBackward(ir)), Some(2 * (2 * 3 * 4) * 5 * 2));

    let options =
        ConvTranspose2dOptionsIr { stride: [2; 2], padding: [0; 2], padding_out: [0; 2], dilation: [1; 2], groups: 1 };
    let (x, weight, out) = (tensor(&[1, 3, 4, 4]), tensor(&[3, 5, 2, 2]), tensor(&[1, 5, 8, 8]));
    let ir = ConvTranspose2dOpIr { x, weight, bias: Some(tensor(&[5])), options, out };
    assert_eq!(module(ModuleOperationIr::ConvTranspose2d(ir)), Some(2 * (3 * 4 * 4) * 5 * 4 + 5 * 8 * 8));
}

#[test]
fn pooling() {
    // 2 × 2 of each 4 × 4: 3 × 3 windows.
    let (x, out) = (tensor(&[1, 2, 4, 4]), tensor(&[1, 2, 3, 3]));
    let ir = AvgPool2dOpIr {
        x: x.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        count_include_pad: true,
        ceil_mode: false,
        out: out.clone(),
    };
    assert_eq!(module(ModuleOperationIr::AvgPool2d(ir)), Some(2 * 9 * 4));
    let ir = AvgPool2dBackwardOpIr {
        x: x.clone(),
        grad: out.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        count_include_pad: true,
        ceil_mode: false,
        out: x.clone(),
    };
    assert_eq!(module(ModuleOperationIr::AvgPool2dBackward(ir)), Some(2 * 9 * 4));
    let indices = tensor_of(&[1, 2, 3, 3], DType::I64);
    let ir = MaxPool2dWithIndicesOpIr {
        x: x.clone(),
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        ceil_mode: false,
        out: out.clone(),
        out_indices: indices.clone(),
    };
    let operation = OperationIr::Module(ModuleOperationIr::MaxPool2dWithIndices(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(2 * 9 * 4), 4 * (2 * 16 + 2 * 9) + 8 * 2 * 9));
    assert_eq!(Description::of(&operation).field("op.dtype.indices"), Some(&Value::from("i64")));
    let ir = MaxPool2dWithIndicesBackwardOpIr {
        x: x.clone(),
        grad: out,
        indices,
        kernel_size: [2; 2],
        stride: [1; 2],
        padding: [0; 2],
        dilation: [1; 2],
        ceil_mode: false,
        out: x.clone(),
    };
    assert_eq!(module(ModuleOperationIr::MaxPool2dWithIndicesBackward(ir)), Some(2 * 9));
    let ir = AdaptiveAvgPool2dOpIr { x, output_size: [2; 2], out: tensor(&[1, 2, 2, 2]) };
    assert_eq!(module(ModuleOperationIr::AdaptiveAvgPool2d(ir)), Some(2 * 16 + 2 * 4));
}

#[test]
fn interpolation() {
    let of = |mode| {
        let options = InterpolateOptionsIr { mode, align_corners: false };
        let (x, out) = (tensor(&[1, 3, 4, 4]), tensor(&[1, 3, 8, 8]));
        module(ModuleOperationIr::Interpolate(InterpolateOpIr { x, output_size: [8, 8], options, out }))
    };
    assert_eq!(of(InterpolateModeIr::Nearest), Some(0));
    assert_eq!(of(InterpolateModeIr::Bilinear), Some(3 * 64 * 2 * 4));
    assert_eq!(of(InterpolateModeIr::Bicubic), Some(3 * 64 * 2 * 16));
    let options = InterpolateOptionsIr { mode: InterpolateModeIr::Bilinear, align_corners: false };
    let (x, grad) = (tensor(&[1, 3, 4, 4]), tensor(&[1, 3, 8, 8]));
    let ir = InterpolateBackwardOpIr { out: x.clone(), x, grad, output_size: [8, 8], options };
    assert_eq!(module(ModuleOperationIr::InterpolateBackward(ir)), Some(3 * 64 * 2 * 4));
}

#[test]
fn norms() {
    let numbers = 3 * 8;
    let ir = |beta| {
        let (input, gamma, out) = (tensor(&[3, 8]), tensor(&[8]), tensor(&[3, 8]));
        LayerNormOpIr { input, gamma, beta, epsilon: ScalarIr::Float(1e-5), out }
    };
    assert_eq!(module(ModuleOperationIr::LayerNorm(ir(Some(tensor(&[8]))))), Some(7 * numbers));
    assert_eq!(module(ModuleOperationIr::LayerNorm(ir(None))), Some(6 * numbers));
    let channels = || tensor(&[8]);
    let ir = BatchNormOpIr {
        x: tensor(&[3, 8, 2, 2]),
        gamma: channels(),
        beta: channels(),
        mean: channels(),
        variance: channels(),
        epsilon: ScalarIr::Float(1e-5),
        out: tensor(&[3, 8, 2, 2]),
    };
    assert_eq!(module(ModuleOperationIr::BatchNorm(ir)), Some(4 * 4 * numbers));
}

#[test]
fn attention_is_two_products_and_a_softmax() {
    let ir = |attn_bias| AttentionOpIr {
        query: tensor(&[2, 4, 5, 8]),
        key: tensor(&[2, 4, 9, 8]),
        value: tensor(&[2, 4, 9, 6]),
        mask: None,
        attn_bias,
        options: AttentionOptionsIr { scale: None, softcap: None, is_causal: true },
        out: tensor(&[2, 4, 5, 6]),
    };
    let scores = 2 * 4 * 5 * 9;
    assert_eq!(module(ModuleOperationIr::Attention(ir(None))), Some(scores * (2 * 8 + 6 + 2 * 6)));
    let bias = Some(tensor(&[2, 4, 5, 9]));
    assert_eq!(module(ModuleOperationIr::Attention(ir(bias))), Some(scores * (2 * 8 + 7 + 2 * 6)));
}

#[test]
fn on_each_number() {
    // Broadcast: as many as come out.
    let add = numeric(NumericOperationIr::Add(binary(&[8, 32], &[1, 32], &[8, 32])));
    assert_eq!((flops(&add), bytes(&add)), (Some(8 * 32), 4 * (8 * 32 + 32 + 8 * 32)));
    assert_eq!(flops(&numeric(NumericOperationIr::MulScalar(scalar(&[8, 32])))), Some(8 * 32));
    let float = |operation| flops(&OperationIr::Float(DType::F32, operation));
    assert_eq!(float(FloatOperationIr::Exp(unary(&[5, 7], &[5, 7]))), Some(35));
    let cross = CrossOpIr { lhs: tensor(&[5, 3]), rhs: tensor(&[5, 3]), out: tensor(&[5, 3]), dim: 1 };
    assert_eq!(float(FloatOperationIr::Cross(cross)), Some(5 * 3 * 3));
    let activation = |operation| flops(&OperationIr::Activation(operation));
    assert_eq!(activation(ActivationOperationIr::Gelu(unary(&[5, 7], &[5, 7]))), Some(35));
    assert_eq!(activation(ActivationOperationIr::ReluBackward(binary(&[5, 7], &[5, 7], &[5, 7]))), Some(70));
    let softmax = || DimOpIr { input: tensor(&[5, 7]), out: tensor(&[5, 7]), axis: 1 };
    assert_eq!(activation(ActivationOperationIr::Softmax(softmax())), Some(5 * 35));
    assert_eq!(activation(ActivationOperationIr::Softmin(softmax())), Some(6 * 35));
}

#[test]
fn reductions() {
    let sum = ReduceOpIr { input: tensor(&[5, 7]), out: tensor(&[1]) };
    assert_eq!(flops(&numeric(NumericOperationIr::Sum(sum))), Some(35));
    assert_eq!(flops(&numeric(NumericOperationIr::MeanDim(reduced(&[5, 7], &[5, 1])))), Some(35));
    assert_eq!(flops(&numeric(NumericOperationIr::MaxDim(reduced(&[5, 7], &[5, 1])))), Some(35));
    let dims = ReduceDimsOpIr { input: tensor(&[5, 7, 2]), out: tensor(&[1, 7, 1]), axes: vec![0, 2] };
    assert_eq!(flops(&numeric(NumericOperationIr::SumDims(dims))), Some(70));
    // Indices are no floating-point numbers.
    let ir = ReduceDimOpIr { input: tensor(&[5, 7]), out: tensor_of(&[5, 1], DType::I64), axis: 1, accumulator_len: 1 };
    assert_eq!(flops(&numeric(NumericOperationIr::ArgMax(ir))), Some(0));
}

#[test]
fn what_moves_numbers_takes_no_operations() {
    let base = |operation| {
        let operation = OperationIr::BaseFloat(operation);
        (flops(&operation), bytes(&operation))
    };
    let reshape = ShapeOpIr { input: tensor(&[5, 8]), out: tensor(&[40]) };
    assert_eq!(base(BaseOperationIr::Reshape(reshape)), (Some(0), 0));
    let cat = CatOpIr { tensors: vec![tensor(&[5, 8]), tensor(&[3, 8])], dim: 0, out: tensor(&[8, 8]) };
    assert_eq!(base(BaseOperationIr::Cat(cat)), (Some(0), 4 * 2 * 64));
    let cast = CastOpIr { input: tensor(&[5, 8]), out: tensor_of(&[5, 8], DType::F16) };
    assert_eq!(base(BaseOperationIr::Cast(cast)), (Some(0), 40 * (4 + 2)));
    // Of a table only the rows that are asked for are read.
    let indices = || tensor_of(&[3], DType::I64);
    let select = SelectOpIr { tensor: tensor(&[100, 8]), dim: 0, indices: indices(), out: tensor(&[3, 8]) };
    assert_eq!(base(BaseOperationIr::Select(select)), (Some(0), 8 * 3 + 2 * 4 * 3 * 8));
    let embedding = EmbeddingOpIr { weights: tensor(&[100, 8]), indices: indices(), out: tensor(&[3, 8]) };
    let embedding = OperationIr::Module(ModuleOperationIr::Embedding(embedding));
    assert_eq!((flops(&embedding), bytes(&embedding)), (Some(0), 8 * 3 + 2 * 4 * 3 * 8));
    assert_eq!(flops(&OperationIr::Drop(tensor(&[5, 8]))), Some(0));
    let equal = BinaryOpIr {
        lhs: tensor(&[8]),
        rhs: tensor(&[8]),
        out: tensor_of(&[8], DType::Bool(burn::tensor::BoolStore::U8)),
    };
    assert_eq!(base(BaseOperationIr::Equal(equal)), (Some(0), 8 * (4 + 4 + 1)));
}

#[test]
fn what_is_put_in_is_added_or_replaces() {
    let of = |update| {
        let (table, indices, value) = (tensor(&[100, 8]), tensor_of(&[3], DType::I64), tensor(&[3, 8]));
        let ir = SelectAssignOpIr { out: table.clone(), tensor: table, dim: 0, indices, value, update };
        let operation = OperationIr::BaseFloat(BaseOperationIr::SelectAssign(ir));
        (flops(&operation), bytes(&operation))
    };
    assert_eq!(of(IndexingUpdateOp::Add), (Some(3 * 8), 8 * 3 + 3 * 4 * 3 * 8));
    assert_eq!(of(IndexingUpdateOp::Assign), (Some(0), 8 * 3 + 2 * 4 * 3 * 8));
    let table = tensor(&[100, 8]);
    let ir = EmbeddingBackwardOpIr {
        out: table.clone(),
        weights: table,
        out_grad: tensor(&[3, 8]),
        indices: tensor_of(&[3], DType::I64),
    };
    assert_eq!(module(ModuleOperationIr::EmbeddingBackward(ir)), Some(3 * 8));
    let ir =
        SliceAssignOpIr { tensor: tensor(&[8, 8]), ranges: Vec::new(), value: tensor(&[1, 8]), out: tensor(&[8, 8]) };
    let operation = OperationIr::BaseFloat(BaseOperationIr::SliceAssign(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(0), 2 * 4 * 8));
}

#[test]
fn what_others_decide_is_not_known() {
    let custom = CustomOpIr::new("fused_mlp", &[tensor(&[5, 8])], &[tensor(&[5, 8]), tensor(&[5])]);
    let custom = OperationIr::Custom(custom);
    assert_eq!(flops(&custom), None);
    let description = Description::of(&custom);
    assert_eq!(description.name, "fused_mlp");
    let fields: Vec<_> = description.fields.iter().map(|(name, _)| *name).collect();
    let expected = [
        "op.shape.input",
        "op.dtype.input",
        "op.shape.output",
        "op.dtype.output",
        "op.shape.output1",
        "op.dtype.output1",
        "op.bytes",
    ];
    assert_eq!(fields, expected);
}

#[test]
fn of_quantized_numbers_several_are_in_a_byte() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q4S).with_store(QuantStore::PackedU32(0));
    let out = TensorIr::uninit(TensorId::new(0), Shape::new([8, 16]), DType::QFloat(scheme));
    let ir = DequantizeOpIr { input: out, out: tensor(&[8, 16]) };
    let operation = OperationIr::Float(DType::F32, FloatOperationIr::Dequantize(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(8 * 16), 8 * 16 / 2 + 4 * 8 * 16));
}
