//! The cost of looking up and recording an operation that is cached. `cargo bench -p kernspan-burn --bench operations`

use burn::{
    backend::ir::{
        ActivationOperationIr, BinaryOpIr, FloatOperationIr, LinearOpIr, MatmulOpIr, ModuleOperationIr,
        NumericOperationIr, OperationIr, TensorId, TensorIr, TensorStatus, UnaryOpIr,
    },
    tensor::{DType, Shape},
};
use kernspan_burn::{Description, DescriptionCache, LiveMemory};
use std::{hint::black_box, sync::Arc, time::Instant};

/// The number of layers, each of a different size.
const LAYERS: usize = 100;
const ROUNDS: usize = 2000;

type Make = fn(usize) -> OperationIr;

fn main() {
    let kinds: [(&str, Make); 6] = [
        ("drop", drop_of),
        ("relu", relu),
        ("add", add),
        ("matmul", matmul),
        ("linear", linear),
        ("add, 4 dims", add4),
    ];
    println!("ns an operation, least of {ROUNDS} rounds of {LAYERS} operations\n");
    println!("{:16}{:>10}{:>18}{:>12}{:>14}", "", "tensors", "DescriptionCache", "LiveMemory", "Description");
    for (name, make) in kinds {
        let operations: Vec<_> = (0..LAYERS).map(make).collect();
        // The cache also contains operations of the other kinds.
        let mut cache = DescriptionCache::new();
        for (_, make) in kinds {
            (0..LAYERS).for_each(|layer| drop(cache.get(&make(layer), |description| description)));
        }
        let tensors = operations[0].inputs().chain(operations[0].outputs()).count();
        let lookup = least(&operations, |operation| {
            let found: Arc<Description> = cache.get(operation, |_| unreachable!("all are cached"));
            drop(black_box(found));
        });
        let mut memory = LiveMemory::new();
        let record = least(&operations, |operation| memory.record(black_box(operation)));
        let describe = least(&operations, |operation| drop(black_box(Description::of(operation))));
        println!("{name:16}{tensors:>10}{lookup:>18.1}{record:>12.1}{describe:>14.1}");
    }
}

/// Returns the least time per operation, in nanoseconds.
fn least(operations: &[OperationIr], mut one: impl FnMut(&OperationIr)) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        operations.iter().for_each(|operation| one(black_box(operation)));
        least = least.min(start.elapsed().as_nanos() as f64 / operations.len() as f64);
    }
    least
}

fn tensor(id: usize, dims: &[usize], status: TensorStatus) -> TensorIr {
    let id = TensorId::new(id as u64);
    TensorIr { id, shape: Shape::from(dims.to_vec()), status, dtype: DType::F32 }
}

fn input(layer: usize, dims: &[usize]) -> TensorIr {
    tensor(4 * layer, dims, TensorStatus::ReadWrite)
}

fn weight(layer: usize, dims: &[usize]) -> TensorIr {
    tensor(4 * layer + 1, dims, TensorStatus::ReadOnly)
}

fn bias(layer: usize, dims: &[usize]) -> TensorIr {
    tensor(4 * layer + 2, dims, TensorStatus::ReadOnly)
}

/// Returns an output, which is the input of the next layer.
fn output(layer: usize, dims: &[usize]) -> TensorIr {
    tensor(4 * layer + 4, dims, TensorStatus::NotInit)
}

fn drop_of(layer: usize) -> OperationIr {
    OperationIr::Drop(input(layer, &[64, layer + 1]))
}

fn relu(layer: usize) -> OperationIr {
    let (input, out) = (input(layer, &[64, layer + 1]), output(layer, &[64, layer + 1]));
    OperationIr::Activation(ActivationOperationIr::Relu(UnaryOpIr { input, out }))
}

fn add(layer: usize) -> OperationIr {
    let (lhs, rhs) = (input(layer, &[64, layer + 1]), weight(layer, &[1, layer + 1]));
    let out = output(layer, &[64, layer + 1]);
    OperationIr::NumericFloat(DType::F32, NumericOperationIr::Add(BinaryOpIr { lhs, rhs, out }))
}

fn add4(layer: usize) -> OperationIr {
    let (lhs, rhs) = (input(layer, &[64, layer + 1, 7, 7]), weight(layer, &[64, layer + 1, 7, 7]));
    let out = output(layer, &[64, layer + 1, 7, 7]);
    OperationIr::NumericFloat(DType::F32, NumericOperationIr::Add(BinaryOpIr { lhs, rhs, out }))
}

fn matmul(layer: usize) -> OperationIr {
    let (lhs, rhs) = (input(layer, &[64, layer + 1]), weight(layer, &[layer + 1, 128]));
    let out = output(layer, &[64, 128]);
    OperationIr::Float(DType::F32, FloatOperationIr::Matmul(MatmulOpIr { lhs, rhs, out }))
}

fn linear(layer: usize) -> OperationIr {
    let (x, weight) = (input(layer, &[64, layer + 1]), weight(layer, &[layer + 1, 128]));
    let (bias, out) = (Some(bias(layer, &[128])), output(layer, &[64, 128]));
    OperationIr::Module(ModuleOperationIr::Linear(LinearOpIr { x, weight, bias, out }))
}
