//! Names and FLOPs of the operations of whole programs, which Burn captures without running them, compared with values
//! computed by hand.

mod ir;

use burn::{
    backend::{
        Autodiff, AutodiffBackend, Capture,
        ir::OperationIr,
        ops::{ActivationOps, ConvOptions, FloatTensorOps, ModuleOps},
    },
    nn::{BatchNormConfig, LinearConfig, conv::Conv2dConfig, pool::MaxPool2dConfig},
    tensor::{Device, Shape, Tensor, activation},
};
use ir::captured;
use kernspan::trace::Value;
use kernspan_burn::{Description, DescriptionCache, flops};

/// Returns the name and the FLOPs of each operation.
fn names_and_flops(operations: &[OperationIr]) -> Vec<(String, u64)> {
    let name_and_flops = |operation| (Description::of(operation).name.into_owned(), flops(operation).unwrap());
    operations.iter().map(name_and_flops).collect()
}

fn check(operations: &[OperationIr], expected: &[(&str, u64)]) {
    let actual = names_and_flops(operations);
    let actual: Vec<_> = actual.iter().map(|(name, flops)| (name.as_str(), *flops)).collect();
    assert_eq!(actual, expected);
}

#[test]
fn forward_through_a_perceptron() {
    let (operations, _) = captured(|device| {
        let first = LinearConfig::new(16, 32).init(device);
        let second = LinearConfig::new(32, 10).init(device);
        let input = Tensor::<2>::zeros([8, 16], device);
        activation::softmax(second.forward(activation::relu(first.forward(input))), 1)
    });
    check(
        &operations,
        &[
            ("zeros", 0),
            ("random", 0),
            ("random", 0),
            ("matmul", 2 * 8 * 32 * 16),
            ("reshape", 0),
            ("add", 8 * 32),
            ("relu", 8 * 32),
            ("random", 0),
            ("random", 0),
            ("matmul", 2 * 8 * 10 * 32),
            ("reshape", 0),
            ("add", 8 * 10),
            ("softmax", 5 * 8 * 10),
        ],
    );
    let matmul = Description::of(&operations[3]);
    let text = |field| matmul.field(field).and_then(Value::as_str);
    let shapes = ["op.shape.lhs", "op.shape.rhs", "op.shape.output", "op.gemm"].map(text);
    assert_eq!(shapes, [Some("[8, 16]"), Some("[16, 32]"), Some("[8, 32]"), Some("8x32x16")]);
    assert_eq!(text("op.dtype.lhs"), Some("f32"));
}

#[test]
fn forward_through_a_convolutional_network() {
    let (operations, _) = captured(|device| {
        let convolution = Conv2dConfig::new([3, 8], [3, 3]).init(device);
        let norm = BatchNormConfig::new(8).init(device);
        let pool = MaxPool2dConfig::new([2, 2]).init();
        let linear = LinearConfig::new(8 * 3 * 3, 10).init(device);
        let input = Tensor::<4>::zeros([2, 3, 8, 8], device);
        let features = pool.forward(activation::gelu(norm.forward(convolution.forward(input))));
        linear.forward(features.flatten::<2>(1, 3))
    });
    let mut actual = names_and_flops(&operations);
    actual.retain(|(_, flops)| *flops > 0);
    let actual: Vec<_> = actual.iter().map(|(name, flops)| (name.as_str(), *flops)).collect();
    // 8 × 8 inputs and a kernel of 3 × 3 have 6 × 6 outputs.
    let elements = 2 * 8 * 6 * 6;
    let expected = [
        ("conv2d", elements * (2 * 3 * 9 + 1)),
        ("batch_norm", 4 * elements),
        ("gelu", elements),
        ("max_pool2d", 2 * 8 * 3 * 3 * 4),
        ("matmul", 2 * 2 * 10 * 72),
        ("add", 2 * 10),
    ];
    assert_eq!(actual, expected);
}

/// Burn captures no autodiff programs, so these tests use the backends below its tensor API.
type Differentiated = Autodiff<Capture>;
type Float = <Differentiated as burn::backend::BackendTypes>::FloatTensorPrimitive;

fn constant<const D: usize>(dims: [usize; D], device: &Device) -> Float {
    Differentiated::from_inner(Tensor::<D>::zeros(dims, device).try_into_primitive::<Capture>().unwrap())
}

fn parameter<const D: usize>(dims: [usize; D], device: &Device) -> Float {
    Differentiated::float_set_require_grad(constant(dims, device), true)
}

#[test]
fn backward_through_a_perceptron() {
    let (operations, _) = captured(|device| {
        let (first, second) = (parameter([16, 32], device), parameter([32, 10], device));
        let (first_bias, second_bias) = (parameter([32], device), parameter([10], device));
        let hidden = Differentiated::linear(constant([8, 16], device), first, Some(first_bias));
        let output = Differentiated::linear(Differentiated::relu(hidden), second, Some(second_bias));
        Differentiated::backward(Differentiated::float_sum(output))
    });
    let flops_of = |name: &str| {
        let of_name = |operation: &&OperationIr| Description::of(operation).name == name;
        operations.iter().filter(of_name).map(|operation| flops(operation).unwrap()).collect::<Vec<_>>()
    };
    let (first, second) = (2 * 8 * 32 * 16, 2 * 8 * 10 * 32);
    assert_eq!(flops_of("linear"), [first + 8 * 32, second + 8 * 10]);
    assert_eq!(flops_of("relu"), [8 * 32]);
    assert_eq!(flops_of("relu_backward"), [2 * 8 * 32]);
    // The gradient of the first input is not needed.
    assert_eq!(flops_of("linear_x_backward"), [second]);
    assert_eq!(flops_of("linear_weight_backward"), [second, first]);
    assert_eq!(flops_of("linear_bias_backward"), [8 * 10, 8 * 32]);
}

#[test]
fn backward_through_convolutions() {
    let (operations, _) = captured(|device| {
        let options = || ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
        let (first, second) = (parameter([8, 3, 3, 3], device), parameter([4, 8, 3, 3], device));
        let hidden = Differentiated::conv2d(constant([2, 3, 10, 10], device), first, None, options());
        let hidden = Differentiated::conv2d(hidden, second, Some(parameter([4], device)), options());
        let pooled = Differentiated::max_pool2d(hidden, [2, 2], [2, 2], [0, 0], [1, 1], false);
        let output = Differentiated::float_reshape(pooled, Shape::new([2, 4 * 3 * 3]));
        Differentiated::backward(Differentiated::float_sum(output))
    });
    let total = |prefix: &str| {
        let of_name = |operation: &&OperationIr| Description::of(operation).name.starts_with(prefix);
        operations.iter().filter(of_name).map(|operation| flops(operation).unwrap()).sum::<u64>()
    };
    let (first, second) = (2 * 8 * 8 * 8 * (2 * 3 * 9), 2 * 4 * 6 * 6 * (2 * 8 * 9));
    assert_eq!(total("conv2d_x_backward"), second);
    assert_eq!(total("conv2d_weight_backward"), first + second);
    assert_eq!(total("conv2d_bias_backward"), 2 * 4 * 6 * 6);
    assert_eq!(total("conv2d"), 2 * first + 3 * second + 2 * (2 * 4 * 6 * 6));
    assert_eq!(total("max_pool2d_with_indices"), 2 * 4 * 3 * 3 * 4 + 2 * 4 * 3 * 3);
}

#[test]
fn a_repeated_step_makes_no_new_descriptions() {
    let mut cache = DescriptionCache::new();
    let mut made = 0;
    let mut step = || {
        let (operations, _) = captured(|device| {
            let linear = LinearConfig::new(16, 32).init(device);
            let input = Tensor::<2>::zeros([8, 16], device);
            activation::relu(linear.forward(input))
        });
        operations.iter().for_each(|operation| drop(cache.get(operation, |_| made += 1)));
        (operations.len(), made)
    };
    let first = step();
    assert_eq!((first, step()), ((7, 7), (7, 7)));
}
