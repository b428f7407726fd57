//! Formulas for the cost of operations: FLOPs, bytes, and the sizes of matrix products.

use super::arguments::Arguments;
use burn::{backend::ir::TensorIr, tensor::DType};
use std::fmt;

/// The cost of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// `None` if unknown.
    pub(super) flops: Option<u64>,
    /// Bytes read and written.
    pub(super) bytes: u64,
    pub(super) gemm: Option<Gemm>,
}

/// The sizes of a product of an m×k and a k×n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gemm {
    m: u64,
    n: u64,
    k: u64,
}

/// A function that computes the cost of an operation.
pub(super) type Formula = fn(&Arguments<'_>) -> Cost;

impl Cost {
    /// The cost of these FLOPs, or of none if the output is not floating-point, with each tensor read or written once.
    fn of_flops(arguments: &Arguments<'_>, flops: u64) -> Self {
        let flops = if arguments.output().is_some_and(is_float) { flops } else { 0 };
        Self { flops: Some(flops), ..unknown(arguments) }
    }

    /// The cost of computing the gradient of a tensor. The tensor itself, an input of the output's size, is not read.
    fn of_gradient(arguments: &Arguments<'_>, flops: u64) -> Self {
        let cost = Self::of_flops(arguments, flops);
        Self { bytes: cost.bytes.saturating_sub(arguments.output().map_or(0, bytes)), ..cost }
    }

    /// The cost of `sums` sums of `products` products each, plus one addition per output element if there is a bias.
    fn of_products(arguments: &Arguments<'_>, sums: u64, products: u64, bias: Option<&TensorIr>) -> Self {
        let bias = if bias.is_some() { output_elements(arguments) } else { 0 };
        Self::of_flops(arguments, product([2, sums, products]).saturating_add(bias))
    }
}

/// An operation of unknown FLOPs, with each tensor read or written once.
pub(super) fn unknown(arguments: &Arguments<'_>) -> Cost {
    Cost { flops: None, bytes: total_bytes(arguments.inputs().chain(arguments.outputs())), gemm: None }
}

/// An operation that copies, compares, casts or creates all elements.
pub(super) fn data_movement(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, 0)
}

/// An operation that changes no elements, such as a new shape.
pub(super) fn no_cost(_: &Arguments<'_>) -> Cost {
    Cost { flops: Some(0), ..Cost::default() }
}

/// An operation that copies some of the elements, and reads only those.
pub(super) fn gather(arguments: &Arguments<'_>) -> Cost {
    let gathered = arguments.output().map_or(0, bytes);
    let indices = arguments.input(1).map_or(0, bytes);
    Cost { flops: Some(0), bytes: product([2, gathered]).saturating_add(indices), gemm: None }
}

/// An operation that updates some of the elements in place.
pub(super) fn scatter(arguments: &Arguments<'_>) -> Cost {
    let value = arguments.input(2).or(arguments.input(1));
    let (count, size) = value.map_or((0, 0), |value| (elements(value), bytes(value)));
    let indices = arguments.input(2).and(arguments.input(1)).map_or(0, bytes);
    // The old elements are read only if they are part of the result.
    let accesses = 2 + u64::from(arguments.work_per_element > 0);
    let bytes = product([accesses, size]).saturating_add(indices);
    Cost { bytes, ..Cost::of_flops(arguments, product([arguments.work_per_element, count])) }
}

/// An operation with `COUNT` FLOPs per output element.
pub(super) fn elementwise<const COUNT: u64>(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, product([COUNT, output_elements(arguments)]))
}

/// An operation with one FLOP per input element.
pub(super) fn reduction(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, arguments.input(0).map_or(0, elements))
}

pub(super) fn matmul(arguments: &Arguments<'_>) -> Cost {
    let (Some(lhs), Some(rhs), Some(output)) = (arguments.input(0), arguments.input(1), arguments.output()) else {
        return unknown(arguments);
    };
    let (n, k) = (dim_from_end(output, 0), dim_from_end(lhs, 0));
    // With a single matrix on the right, a batch of matrices on the left is one matrix with more rows.
    let single = elements(rhs) == product([k, n]);
    let m = if single { elements(output) / n.max(1) } else { dim_from_end(output, 1) };
    Cost { gemm: Some(Gemm { m, n, k }), ..Cost::of_products(arguments, elements(output), k, None) }
}

/// The weight's dimensions are the inputs and the outputs.
pub(super) fn linear(arguments: &Arguments<'_>) -> Cost {
    product_of_rows(arguments, arguments.input(2))
}

/// The gradient and the weight are the arguments, in place of input and weight.
pub(super) fn linear_x_backward(arguments: &Arguments<'_>) -> Cost {
    product_of_rows(arguments, None)
}

fn product_of_rows(arguments: &Arguments<'_>, bias: Option<&TensorIr>) -> Cost {
    let (Some(input), Some(output)) = (arguments.input(0), arguments.output()) else { return unknown(arguments) };
    let (n, k) = (dim_from_end(output, 0), dim_from_end(input, 0));
    let gemm = Gemm { m: elements(output) / n.max(1), n, k };
    Cost { gemm: Some(gemm), ..Cost::of_products(arguments, elements(output), k, bias) }
}

pub(super) fn linear_weight_backward(arguments: &Arguments<'_>) -> Cost {
    let (Some(input), Some(output)) = (arguments.input(0), arguments.output()) else { return unknown(arguments) };
    let m = dim_from_end(input, 0);
    let (n, k) = (elements(output) / m.max(1), elements(input) / m.max(1));
    Cost { gemm: Some(Gemm { m, n, k }), ..Cost::of_products(arguments, elements(output), k, None) }
}

/// The gradient of a bias, which is a sum of the output's gradient. That is the last input; the others are not read.
pub(super) fn bias_backward(arguments: &Arguments<'_>) -> Cost {
    let gradient = arguments.input(2).or(arguments.input(0));
    let bytes = total_bytes(gradient.into_iter().chain(arguments.outputs()));
    Cost { bytes, ..Cost::of_flops(arguments, gradient.map_or(0, elements)) }
}

/// The weight's dimensions are the output channels, the input channels of a group, and the kernel.
pub(super) fn convolution(arguments: &Arguments<'_>) -> Cost {
    Cost::of_products(arguments, output_elements(arguments), per_channel(arguments.input(1)), arguments.input(2))
}

/// The gradient of the input or of the weight.
pub(super) fn convolution_backward(arguments: &Arguments<'_>) -> Cost {
    let outputs = arguments.input(2).map_or(0, elements);
    Cost::of_gradient(arguments, product([2, outputs, per_channel(arguments.input(1))]))
}

/// The gradients of input and weight, each as expensive as the forward pass, and of the bias.
pub(super) fn deformable_convolution_backward(arguments: &Arguments<'_>) -> Cost {
    let outputs = arguments.input(3).map_or(0, elements);
    let bias = if arguments.input(2).is_some() { outputs } else { 0 };
    Cost::of_flops(arguments, product([4, outputs, per_channel(arguments.input(1))]).saturating_add(bias))
}

/// The weight's dimensions are the input channels, the output channels of a group, and the kernel.
pub(super) fn transposed_convolution(arguments: &Arguments<'_>) -> Cost {
    let inputs = arguments.input(0).map_or(0, elements);
    Cost::of_products(arguments, inputs, per_channel(arguments.input(1)), arguments.input(2))
}

pub(super) fn transposed_convolution_weight_backward(arguments: &Arguments<'_>) -> Cost {
    let inputs = arguments.input(0).map_or(0, elements);
    Cost::of_gradient(arguments, product([2, inputs, per_channel(arguments.input(1))]))
}

/// One FLOP per element of each window.
pub(super) fn pooling(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, product([arguments.work_per_element, output_elements(arguments)]))
}

/// One FLOP per element of each window, or one per window if only one element has a gradient.
pub(super) fn pooling_backward(arguments: &Arguments<'_>) -> Cost {
    Cost::of_gradient(arguments, product([arguments.work_per_element, arguments.input(1).map_or(0, elements)]))
}

/// One FLOP per input element and one per output element.
pub(super) fn adaptive_pooling(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, input_and_output_elements(arguments, 0))
}

pub(super) fn adaptive_pooling_backward(arguments: &Arguments<'_>) -> Cost {
    Cost::of_gradient(arguments, input_and_output_elements(arguments, 1))
}

fn input_and_output_elements(arguments: &Arguments<'_>, input: usize) -> u64 {
    arguments.input(input).map_or(0, elements).saturating_add(output_elements(arguments))
}

/// A sum of products with the neighbours of each output element.
pub(super) fn interpolation(arguments: &Arguments<'_>) -> Cost {
    Cost::of_products(arguments, output_elements(arguments), arguments.work_per_element, None)
}

pub(super) fn interpolation_backward(arguments: &Arguments<'_>) -> Cost {
    let gradient = arguments.input(1).map_or(0, elements);
    Cost::of_gradient(arguments, product([2, gradient, arguments.work_per_element]))
}

pub(super) fn layer_norm(arguments: &Arguments<'_>) -> Cost {
    let per_element = 6 + u64::from(arguments.input(2).is_some());
    Cost::of_flops(arguments, product([per_element, output_elements(arguments)]))
}

/// The last two dimensions of queries, keys and values are the length and the head size.
pub(super) fn attention(arguments: &Arguments<'_>) -> Cost {
    let (Some(query), Some(key), Some(value)) = (arguments.input(0), arguments.input(1), arguments.input(2)) else {
        return unknown(arguments);
    };
    let rows = elements(query) / dim_from_end(query, 0).max(1);
    let sizes = dim_from_end(query, 0).saturating_add(dim_from_end(value, 0));
    let per_score = product([2, sizes]).saturating_add(6 + u64::from(arguments.input(4).is_some()));
    Cost::of_flops(arguments, product([rows, dim_from_end(key, 1), per_score]))
}

/// Returns the number of weights per index of the first dimension.
fn per_channel(weight: Option<&TensorIr>) -> u64 {
    weight.map_or(0, |weight| product(weight.shape.iter().skip(1).map(|&dim| dim as u64)))
}

/// Returns a dimension, counted from the last.
fn dim_from_end(tensor: &TensorIr, index: usize) -> u64 {
    tensor.shape.iter().rev().nth(index).map_or(1, |&dim| dim as u64)
}

fn is_float(tensor: &TensorIr) -> bool {
    tensor.dtype.is_float() || matches!(tensor.dtype, DType::QFloat(_))
}

fn elements(tensor: &TensorIr) -> u64 {
    product(tensor.shape.iter().map(|&dim| dim as u64))
}

fn output_elements(arguments: &Arguments<'_>) -> u64 {
    arguments.output().map_or(0, elements)
}

/// Returns the bytes of a tensor; for a quantized one, those of the values without the scales.
pub(crate) fn bytes(tensor: &TensorIr) -> u64 {
    match &tensor.dtype {
        DType::QFloat(scheme) => elements(tensor).saturating_mul(scheme.size_bits_value() as u64).div_ceil(8),
        dtype => elements(tensor).saturating_mul(dtype.size() as u64),
    }
}

fn total_bytes<'a>(tensors: impl Iterator<Item = &'a TensorIr>) -> u64 {
    tensors.fold(0, |sum, tensor| bytes(tensor).saturating_add(sum))
}

fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}
