//! Operations made by hand, and recorded from programs.
#![allow(dead_code, reason = "each test uses a part")]

use burn::{
    backend::ir::{BinaryOpIr, NumericOperationIr, OperationIr, ScalarIr, ScalarOpIr, TensorId, TensorIr, UnaryOpIr},
    tensor::{DType, Device, Shape},
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A tensor of `f32` that is not any other.
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

/// The operations of a program that runs on a device which only records them, and what the program still holds. It does not
/// record what is dropped.
pub(crate) fn recorded<T>(program: impl FnOnce(&Device) -> T) -> (Vec<OperationIr>, T) {
    let device = Device::capture();
    let mut held = None;
    let captured = device.capture_scope(|scope| {
        held = Some(program(&device));
        scope.complete([], [])
    });
    (captured.unwrap().graph.operations, held.unwrap())
}
