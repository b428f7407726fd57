//! Names, FLOPs and bytes of Burn's operations, compared with values computed by hand.

mod convolutions;
#[path = "../ir/mod.rs"]
mod ir;

use burn::{
    backend::ir::*,
    tensor::{
        DType, IndexingUpdateOp, Shape,
        quantization::{QuantScheme, QuantStore, QuantValue},
    },
};
use ir::{binary, bytes, gemm, module_flops, numeric, scalar, tensor, tensor_of, unary};
use kernspan_burn::{Description, flops};

fn matmul(lhs: &[usize], rhs: &[usize], out: &[usize]) -> OperationIr {
    let ir = MatmulOpIr { lhs: tensor(lhs), rhs: tensor(rhs), out: tensor(out) };
    OperationIr::Float(DType::F32, FloatOperationIr::Matmul(ir))
}

fn reduced(dims: &[usize], out: &[usize]) -> ReduceDimOpIr {
    ReduceDimOpIr { input: tensor(dims), out: tensor(out), axis: 1, accumulator_len: 1 }
}

#[test]
fn products() {
    let one = matmul(&[8, 16], &[16, 32], &[8, 32]);
    assert_eq!((flops(&one), gemm(&one).as_deref()), (Some(2 * 8 * 32 * 16), Some("8x32x16")));
    assert_eq!(bytes(&one), 4 * (8 * 16 + 16 * 32 + 8 * 32));
    // A batch of 3 · 5 products.
    let batch = matmul(&[3, 5, 8, 16], &[3, 5, 16, 32], &[3, 5, 8, 32]);
    assert_eq!((flops(&batch), gemm(&batch).as_deref()), (Some(15 * 2 * 8 * 32 * 16), Some("8x32x16")));
    // With a single matrix on the right, the batch is one product.
    let right = matmul(&[3, 5, 8, 16], &[1, 1, 16, 32], &[3, 5, 8, 32]);
    assert_eq!((flops(&right), gemm(&right).as_deref()), (flops(&batch), Some("120x32x16")));
    // With a single matrix on the left, it is not.
    let left = matmul(&[1, 8, 16], &[5, 16, 32], &[5, 8, 32]);
    assert_eq!((flops(&left), gemm(&left).as_deref()), (Some(5 * 2 * 8 * 32 * 16), Some("8x32x16")));
}

#[test]
fn products_of_integers_take_no_flops() {
    let of = |dims: &[usize]| tensor_of(dims, DType::I32);
    let ir = MatmulOpIr { lhs: of(&[8, 16]), rhs: of(&[16, 32]), out: of(&[8, 32]) };
    let operation = OperationIr::Int(IntOperationIr::Matmul(ir));
    assert_eq!((flops(&operation), gemm(&operation).as_deref()), (Some(0), Some("8x32x16")));
    let ir = BinaryOpIr { lhs: of(&[8]), rhs: of(&[8]), out: of(&[8]) };
    assert_eq!(flops(&OperationIr::NumericInt(DType::I32, NumericOperationIr::Add(ir))), Some(0));
}

#[test]
fn linear() {
    // Each of 5 · 3 rows has 7 outputs, each a sum of 4 products and a bias.
    let ir = |bias| LinearOpIr { x: tensor(&[5, 3, 4]), weight: tensor(&[4, 7]), bias, out: tensor(&[5, 3, 7]) };
    let products = 5 * 3 * 7 * (2 * 4);
    assert_eq!(module_flops(ModuleOperationIr::Linear(ir(None))), Some(products));
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
    assert_eq!(module_flops(ModuleOperationIr::LinearBiasBackward(of_bias)), Some(5 * 3 * 7));
}

#[test]
fn norms() {
    let elements = 3 * 8;
    let ir = |beta| {
        let (input, gamma, out) = (tensor(&[3, 8]), tensor(&[8]), tensor(&[3, 8]));
        LayerNormOpIr { input, gamma, beta, epsilon: ScalarIr::Float(1e-5), out }
    };
    assert_eq!(module_flops(ModuleOperationIr::LayerNorm(ir(Some(tensor(&[8]))))), Some(7 * elements));
    assert_eq!(module_flops(ModuleOperationIr::LayerNorm(ir(None))), Some(6 * elements));
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
    assert_eq!(module_flops(ModuleOperationIr::BatchNorm(ir)), Some(4 * 4 * elements));
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
    assert_eq!(module_flops(ModuleOperationIr::Attention(ir(None))), Some(scores * (2 * 8 + 6 + 2 * 6)));
    let bias = Some(tensor(&[2, 4, 5, 9]));
    assert_eq!(module_flops(ModuleOperationIr::Attention(ir(bias))), Some(scores * (2 * 8 + 7 + 2 * 6)));
}

#[test]
fn elementwise() {
    // With broadcasting, the output elements count.
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
    // Indices are not floating-point.
    let ir = ReduceDimOpIr { input: tensor(&[5, 7]), out: tensor_of(&[5, 1], DType::I64), axis: 1, accumulator_len: 1 };
    assert_eq!(flops(&numeric(NumericOperationIr::ArgMax(ir))), Some(0));
}

#[test]
fn data_movement_takes_no_flops() {
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
    // Only the rows that are looked up are read from a table.
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
fn updates_add_or_replace() {
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
    assert_eq!(module_flops(ModuleOperationIr::EmbeddingBackward(ir)), Some(3 * 8));
    let ir =
        SliceAssignOpIr { tensor: tensor(&[8, 8]), ranges: Vec::new(), value: tensor(&[1, 8]), out: tensor(&[8, 8]) };
    let operation = OperationIr::BaseFloat(BaseOperationIr::SliceAssign(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(0), 2 * 4 * 8));
}

#[test]
fn custom_operations_have_no_flops() {
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
fn quantized_elements_take_less_than_a_byte() {
    let scheme = QuantScheme::default().with_value(QuantValue::Q4S).with_store(QuantStore::PackedU32(0));
    let out = TensorIr::uninit(TensorId::new(0), Shape::new([8, 16]), DType::QFloat(scheme));
    let ir = DequantizeOpIr { input: out, out: tensor(&[8, 16]) };
    let operation = OperationIr::Float(DType::F32, FloatOperationIr::Dequantize(ir));
    assert_eq!((flops(&operation), bytes(&operation)), (Some(8 * 16), 8 * 16 / 2 + 4 * 8 * 16));
}
