//! What is alive, by operations made by hand and recorded from a program.

mod ir;

use burn::{
    backend::ir::*,
    nn::LinearConfig,
    tensor::{DType, Slice, Tensor, activation},
};
use ir::{numeric, recorded, tensor, tensor_of};
use kernspan_burn::LiveMemory;

/// What takes 4000 bytes.
const DIMS: [usize; 2] = [10, 100];

fn init(out: &TensorIr) -> OperationIr {
    OperationIr::Init(InitOperationIr { out: out.clone() })
}

fn dropped(tensor: &TensorIr) -> OperationIr {
    OperationIr::Drop(last(tensor))
}

/// As an input that is needed for the last time.
fn last(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::ReadWrite, ..tensor.clone() }
}

/// As an input that is needed again.
fn read(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::ReadOnly, ..tensor.clone() }
}

fn neg(input: TensorIr, out: &TensorIr) -> OperationIr {
    numeric(NumericOperationIr::Neg(UnaryOpIr { input, out: out.clone() }))
}

fn reshape(input: TensorIr, out: &TensorIr) -> OperationIr {
    OperationIr::BaseFloat(BaseOperationIr::Reshape(ShapeOpIr { input, out: out.clone() }))
}

fn matmul(lhs: TensorIr, rhs: TensorIr, out: &TensorIr) -> OperationIr {
    OperationIr::Float(DType::F32, FloatOperationIr::Matmul(MatmulOpIr { lhs, rhs, out: out.clone() }))
}

/// Bytes after each, and the peak.
fn told(operations: &[OperationIr]) -> (Vec<u64>, u64) {
    let mut memory = LiveMemory::new();
    let mut bytes = Vec::new();
    for operation in operations {
        memory.registered(operation);
        bytes.push(memory.bytes());
    }
    (bytes, memory.peak())
}

#[test]
fn a_tensor_lives_until_it_is_dropped() {
    let (a, b) = (tensor(&DIMS), tensor_of(&DIMS, DType::F16));
    assert_eq!(told(&[init(&a), init(&b), dropped(&a), dropped(&b)]), (vec![4000, 6000, 2000, 0], 6000));
}

#[test]
fn a_tensor_lives_until_it_is_used_for_the_last_time() {
    let (a, b, c, d) = (tensor(&[10, 10]), tensor(&[10, 10]), tensor(&[10, 10]), tensor(&[10, 10]));
    let operations = [init(&a), init(&b), matmul(read(&a), read(&b), &c), matmul(last(&c), last(&b), &d), dropped(&d)];
    // A product is beside what it is of.
    assert_eq!(told(&operations), (vec![400, 800, 1200, 800, 400], 1600));
}

#[test]
fn what_nobody_needs_is_written_over() {
    let (a, b, c) = (tensor(&DIMS), tensor(&DIMS), tensor(&DIMS));
    assert_eq!(told(&[init(&a), neg(last(&a), &b), neg(read(&b), &c)]), (vec![4000, 4000, 8000], 8000));
    // Not by something larger.
    let (small, large) = (tensor(&[1, 100]), tensor(&DIMS));
    let (rhs, out) = (tensor(&DIMS), tensor(&DIMS));
    let add = numeric(NumericOperationIr::Add(BinaryOpIr { lhs: last(&small), rhs: read(&rhs), out: out.clone() }));
    assert_eq!(told(&[init(&small), init(&rhs), add]), (vec![400, 4400, 8000], 8400));
    // Nor what is seen by others.
    let view = tensor(&[1000]);
    let operations = [init(&large), reshape(read(&large), &view), neg(last(&large), &tensor(&DIMS))];
    assert_eq!(told(&operations), (vec![4000, 4000, 8000], 8000));
}

#[test]
fn views_share() {
    let (a, b, c) = (tensor(&DIMS), tensor(&[100, 10]), tensor(&[1000]));
    let operations = [init(&a), reshape(read(&a), &b), dropped(&a), reshape(last(&b), &c), dropped(&c)];
    assert_eq!(told(&operations), (vec![4000, 4000, 4000, 4000, 0], 4000));
    // One row many times is one row.
    let (row, rows) = (tensor(&[1, 100]), tensor(&DIMS));
    let expand = ShapeOpIr { input: read(&row), out: rows };
    assert_eq!(told(&[init(&row), OperationIr::BaseFloat(BaseOperationIr::Expand(expand))]), (vec![400, 400], 400));
}

#[test]
fn a_slice_shares_where_memory_can_be_taken_as_it_is() {
    let of = |rows: std::ops::Range<isize>, step| {
        // Rows of 512 bytes.
        let (a, out) = (tensor(&[8, 128]), tensor(&[2, 128]));
        let ranges = vec![Slice::new(rows.start, Some(rows.end), step), Slice::full()];
        let slice = SliceOpIr { tensor: read(&a), ranges, out };
        told(&[init(&a), OperationIr::BaseFloat(BaseOperationIr::Slice(slice))]).1
    };
    assert_eq!(of(2..4, 1), 8 * 512);
    assert_eq!(of(2..6, 2), 8 * 512 + 2 * 512);
    let (a, out) = (tensor(&[8, 128]), tensor(&[8, 64]));
    let ranges = vec![Slice::full(), Slice::new(0, Some(64), 1)];
    let columns = SliceOpIr { tensor: read(&a), ranges, out };
    let columns = OperationIr::BaseFloat(BaseOperationIr::Slice(columns));
    assert_eq!(told(&[init(&a), columns]).1, 8 * 512 + 8 * 256);
}

#[test]
fn what_was_there_before_is_not_counted() {
    let (a, b, view, c) = (tensor(&DIMS), tensor(&DIMS), tensor(&[1000]), tensor(&[1000]));
    // Neither it nor a view of it, but what is made of it.
    let operations = [neg(last(&a), &b), dropped(&a), reshape(read(&tensor(&DIMS)), &view), neg(last(&view), &c)];
    assert_eq!(told(&operations), (vec![4000, 4000, 4000, 8000], 8000));
}

#[test]
fn what_is_never_dropped_is_forgotten_before_what_is_used() {
    let mut memory = LiveMemory::new();
    let weight = tensor(&DIMS);
    memory.registered(&init(&weight));
    let steps = LiveMemory::MAX_TENSORS as u64 + 10;
    for _ in 0..steps {
        // A loss that somebody reads, for which Burn has no operation.
        let loss = ReduceOpIr { input: read(&weight), out: tensor(&[1]) };
        memory.registered(&numeric(NumericOperationIr::Sum(loss)));
    }
    assert!(memory.forgotten() >= LiveMemory::MAX_TENSORS as u64 / 2);
    assert_eq!(memory.bytes(), 4000 + 4 * (steps - memory.forgotten()));
}

#[test]
fn after_a_program_is_alive_what_it_holds() {
    let (operations, _held) = recorded(|device| {
        let first = LinearConfig::new(16, 32).init(device);
        let second = LinearConfig::new(32, 10).init(device);
        let input = Tensor::<2>::zeros([8, 16], device);
        let output = second.forward(activation::relu(first.forward(input)));
        (first, second, output)
    });
    let parameters = 16 * 32 + 32 + 32 * 10 + 10;
    let (bytes, peak) = told(&operations);
    assert_eq!(bytes.last(), Some(&(4 * (parameters + 8 * 10))));
    // The second product, beside its input: the bias is there already.
    assert_eq!(peak, 4 * (parameters + 8 * 32 + 8 * 10));
}
