//! Operations that are made by hand or captured from a program.
#![allow(dead_code, reason = "each test file uses its own part")]

use burn::{
    backend::ir::{
        BinaryOpIr, ModuleOperationIr, NumericOperationIr, OperationIr, ScalarIr, ScalarOpIr, TensorId, TensorIr,
        UnaryOpIr,
    },
    tensor::{DType, Device, Shape},
};
use kernspan::trace::Value;
use kernspan_burn::{Description, flops};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns a new tensor of `f32`.
pub(crate) fn tensor(dims: &[usize]) -> TensorIr {
    tensor_of(dims, DType::F32)
}

pub(crate) fn tensor_of(dims: &[usize], dtype: DType) -> TensorIr {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = TensorId::new(NEXT.fetch_add(1, Ordering::Relaxed));
    TensorIr::uninit(id, Shape::from(dims.to_vec()), dtype)
}

pub(crate) fn numeric(operation: NumericOperationIr) -> OperationIr {
    OperationIr::NumericFloat(DType::F32, operation)
}

pub(crate) fn unary(input: &[usize], out: &[usize]) -> UnaryOpIr {
    UnaryOpIr { input: tensor(input), out: tensor(out) }
}

pub(crate) fn binary(lhs: &[usize], rhs: &[usize], out: &[usize]) -> BinaryOpIr {
    BinaryOpIr { lhs: tensor(lhs), rhs: tensor(rhs), out: tensor(out) }
}

pub(crate) fn scalar(dims: &[usize]) -> ScalarOpIr {
    ScalarOpIr { lhs: tensor(dims), rhs: ScalarIr::Float(2.0), out: tensor(dims) }
}

/// Returns the operations of a program on a device that only captures them, and the tensors that the program still
/// holds. Drops are not captured.
pub(crate) fn captured<T>(program: impl FnOnce(&Device) -> T) -> (Vec<OperationIr>, T) {
    let device = Device::capture();
    let mut held = None;
    let captured = device.capture_scope(|scope| {
        held = Some(program(&device));
        scope.complete([], [])
    });
    (captured.unwrap().graph.operations, held.unwrap())
}

/// Returns the FLOPs of an operation on modules.
pub(crate) fn module_flops(operation: ModuleOperationIr) -> Option<u64> {
    flops(&OperationIr::Module(operation))
}

/// Returns the field `op.gemm` of an operation.
pub(crate) fn gemm(operation: &OperationIr) -> Option<String> {
    Some(Description::of(operation).field("op.gemm")?.as_str()?.to_owned())
}

/// Returns the field `op.bytes` of an operation.
pub(crate) fn bytes(operation: &OperationIr) -> u64 {
    Description::of(operation).field("op.bytes").and_then(Value::as_u64).unwrap()
}
