//! Live memory after operations that are made by hand or captured from a program.

mod ir;

use burn::{
    backend::ir::*,
    nn::LinearConfig,
    tensor::{DType, Slice, Tensor, activation},
};
use ir::{captured, numeric, tensor, tensor_of};
use kernspan_burn::LiveMemory;

/// The shape of a tensor of 4000 bytes.
const DIMS: [usize; 2] = [10, 100];

fn init(out: &TensorIr) -> OperationIr {
    OperationIr::Init(InitOperationIr { out: out.clone() })
}

fn dropped(tensor: &TensorIr) -> OperationIr {
    OperationIr::Drop(last(tensor))
}

/// Returns the tensor as an input that is used for the last time.
fn last(tensor: &TensorIr) -> TensorIr {
    TensorIr { status: TensorStatus::ReadWrite, ..tensor.clone() }
}

/// Returns the tensor as an input that is used again later.
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

/// Returns the live bytes after each operation, and the peak.
fn live_bytes(operations: &[OperationIr]) -> (Vec<u64>, u64) {
    let mut memory = LiveMemory::new();
    let mut bytes = Vec::new();
    for operation in operations {
        memory.record(operation);
        bytes.push(memory.bytes());
    }
    (bytes, memory.peak())
}

#[test]
fn a_tensor_lives_until_it_is_dropped() {
    let (a, b) = (tensor(&DIMS), tensor_of(&DIMS, DType::F16));
    assert_eq!(live_bytes(&[init(&a), init(&b), dropped(&a), dropped(&b)]), (vec![4000, 6000, 2000, 0], 6000));
}

#[test]
fn a_tensor_lives_until_it_is_used_for_the_last_time() {
    let (a, b, c, d) = (tensor(&[10, 10]), tensor(&[10, 10]), tensor(&[10, 10]), tensor(&[10, 10]));
    let operations = [init(&a), init(&b), matmul(read(&a), read(&b), &c), matmul(last(&c), last(&b), &d), dropped(&d)];
    // A product and its factors exist at the same time.
    assert_eq!(live_bytes(&operations), (vec![400, 800, 1200, 800, 400], 1600));
}

#[test]
fn an_input_that_is_not_needed_is_reused() {
    let (a, b, c) = (tensor(&DIMS), tensor(&DIMS), tensor(&DIMS));
    assert_eq!(live_bytes(&[init(&a), neg(last(&a), &b), neg(read(&b), &c)]), (vec![4000, 4000, 8000], 8000));
    // A larger output does not fit.
    let (small, large) = (tensor(&[1, 100]), tensor(&DIMS));
    let (rhs, out) = (tensor(&DIMS), tensor(&DIMS));
    let add = numeric(NumericOperationIr::Add(BinaryOpIr { lhs: last(&small), rhs: read(&rhs), out: out.clone() }));
    assert_eq!(live_bytes(&[init(&small), init(&rhs), add]), (vec![400, 4400, 8000], 8400));
    // Memory with another view is not reused.
    let view = tensor(&[1000]);
    let operations = [init(&large), reshape(read(&large), &view), neg(last(&large), &tensor(&DIMS))];
    assert_eq!(live_bytes(&operations), (vec![4000, 4000, 8000], 8000));
}

#[test]
fn views_share() {
    let (a, b, c) = (tensor(&DIMS), tensor(&[100, 10]), tensor(&[1000]));
    let operations = [init(&a), reshape(read(&a), &b), dropped(&a), reshape(last(&b), &c), dropped(&c)];
    assert_eq!(live_bytes(&operations), (vec![4000, 4000, 4000, 4000, 0], 4000));
    // An expanded row takes the memory of one row.
    let (row, rows) = (tensor(&[1, 100]), tensor(&DIMS));
    let expand = ShapeOpIr { input: read(&row), out: rows };
    assert_eq!(
        live_bytes(&[init(&row), OperationIr::BaseFloat(BaseOperationIr::Expand(expand))]),
        (vec![400, 400], 400)
    );
}

#[test]
fn an_aligned_slice_is_a_view() {
    let of = |rows: std::ops::Range<isize>, step| {
        // A row has 512 bytes.
        let (a, out) = (tensor(&[8, 128]), tensor(&[2, 128]));
        let ranges = vec![Slice::new(rows.start, Some(rows.end), step), Slice::full()];
        let slice = SliceOpIr { tensor: read(&a), ranges, out };
        live_bytes(&[init(&a), OperationIr::BaseFloat(BaseOperationIr::Slice(slice))]).1
    };
    assert_eq!(of(2..4, 1), 8 * 512);
    assert_eq!(of(2..6, 2), 8 * 512 + 2 * 512);
    let (a, out) = (tensor(&[8, 128]), tensor(&[8, 64]));
    let ranges = vec![Slice::full(), Slice::new(0, Some(64), 1)];
    let columns = SliceOpIr { tensor: read(&a), ranges, out };
    let columns = OperationIr::BaseFloat(BaseOperationIr::Slice(columns));
    assert_eq!(live_bytes(&[init(&a), columns]).1, 8 * 512 + 8 * 256);
}

#[test]
fn tensors_from_before_are_not_counted() {
    let (a, b, view, c) = (tensor(&DIMS), tensor(&DIMS), tensor(&[1000]), tensor(&[1000]));
    // Neither the tensor nor a view of it is counted, but new tensors computed from it are.
    let operations = [neg(last(&a), &b), dropped(&a), reshape(read(&tensor(&DIMS)), &view), neg(last(&view), &c)];
    assert_eq!(live_bytes(&operations), (vec![4000, 4000, 4000, 8000], 8000));
}

#[test]
fn tensors_that_are_never_dropped_are_evicted_before_those_in_use() {
    let mut memory = LiveMemory::new();
    let weight = tensor(&DIMS);
    memory.record(&init(&weight));
    let steps = LiveMemory::MAX_TENSORS as u64 + 10;
    for _ in 0..steps {
        // The program reads this loss, which Burn does not report as an operation.
        let loss = ReduceOpIr { input: read(&weight), out: tensor(&[1]) };
        memory.record(&numeric(NumericOperationIr::Sum(loss)));
    }
    assert!(memory.evicted() >= LiveMemory::MAX_TENSORS as u64 / 2);
    assert_eq!(memory.bytes(), 4000 + 4 * (steps - memory.evicted()));
}

#[test]
fn the_tensors_that_a_program_holds_are_alive() {
    let (operations, _held) = captured(|device| {
        let first = LinearConfig::new(16, 32).init(device);
        let second = LinearConfig::new(32, 10).init(device);
        let input = Tensor::<2>::zeros([8, 16], device);
        let output = second.forward(activation::relu(first.forward(input)));
        (first, second, output)
    });
    let parameters = 16 * 32 + 32 + 32 * 10 + 10;
    let (bytes, peak) = live_bytes(&operations);
    assert_eq!(bytes.last(), Some(&(4 * (parameters + 8 * 10))));
    // The peak is at the second product, when its input and its output exist.
    assert_eq!(peak, 4 * (parameters + 8 * 32 + 8 * 10));
}
