use super::arguments::Arguments;
use burn::{backend::ir::TensorIr, tensor::DType};
use std::fmt;

/// What an operation takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// None if that is not known.
    pub(super) flops: Option<u64>,
    /// Read and written.
    pub(super) bytes: u64,
    pub(super) gemm: Option<Gemm>,
}

/// A product of an m×k and a k×n matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gemm {
    m: u64,
    n: u64,
    k: u64,
}

/// Works out what an operation takes.
pub(super) type Formula = fn(&Arguments<'_>) -> Cost;

impl Cost {
    /// Of so many operations, if what comes out is floating-point numbers, on tensors that are each read or written once.
    fn of_flops(arguments: &Arguments<'_>, flops: u64) -> Self {
        let flops = if arguments.output().is_some_and(is_float) { flops } else { 0 };
        Self { flops: Some(flops), ..unknown(arguments) }
    }

    /// Of a gradient: the tensor that it is of is only there for its shape.
    fn of_grad(arguments: &Arguments<'_>, flops: u64) -> Self {
        let cost = Self::of_flops(arguments, flops);
        Self { bytes: cost.bytes.saturating_sub(arguments.output().map_or(0, bytes)), ..cost }
    }

    /// Of sums of products, and a bias for each number that comes out, if there is one.
    fn of_products(arguments: &Arguments<'_>, sums: u64, products: u64, bias: Option<&TensorIr>) -> Self {
        let bias = if bias.is_some() { arguments.output().map_or(0, numbers) } else { 0 };
        Self::of_flops(arguments, product([2, sums, products]).saturating_add(bias))
    }
}

/// What others decide, on tensors that are each read or written once.
pub(super) fn unknown(arguments: &Arguments<'_>) -> Cost {
    let bytes = arguments.inputs().chain(arguments.outputs()).fold(0, |sum, tensor| bytes(tensor).saturating_add(sum));
    Cost { flops: None, bytes, gemm: None }
}

/// What copies, compares, casts or makes up all that there is.
pub(super) fn moves(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, 0)
}

/// What says something of tensors and leaves their numbers where they are.
pub(super) fn nothing(_: &Arguments<'_>) -> Cost {
    Cost { flops: Some(0), ..Cost::default() }
}

/// What takes some of the numbers, and reads only those.
pub(super) fn picks(arguments: &Arguments<'_>) -> Cost {
    let picked = arguments.output().map_or(0, bytes);
    let indices = arguments.input(1).map_or(0, bytes);
    Cost { flops: Some(0), bytes: product([2, picked]).saturating_add(indices), gemm: None }
}

/// What replaces some of the numbers, with as many operations on each, and leaves the others.
pub(super) fn updates(arguments: &Arguments<'_>) -> Cost {
    let value = arguments.input(2).or(arguments.input(1));
    let (count, size) = value.map_or((0, 0), |value| (numbers(value), bytes(value)));
    let indices = arguments.input(2).and(arguments.input(1)).map_or(0, bytes);
    let reads = 2 + u64::from(arguments.times > 0);
    let bytes = product([reads, size]).saturating_add(indices);
    Cost { bytes, ..Cost::of_flops(arguments, product([arguments.times, count])) }
}

/// So many for each number that comes out.
pub(super) fn each<const COUNT: u64>(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, product([COUNT, arguments.output().map_or(0, numbers)]))
}

/// One for each number that goes in.
pub(super) fn reduces(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, arguments.input(0).map_or(0, numbers))
}

pub(super) fn matmul(arguments: &Arguments<'_>) -> Cost {
    let (Some(lhs), Some(rhs), Some(output)) = (arguments.input(0), arguments.input(1), arguments.output()) else {
        return unknown(arguments);
    };
    let (n, k) = (last(output, 0), last(lhs, 0));
    // With one matrix on the right, a batch of matrices is one that is higher.
    let one = numbers(rhs) == product([k, n]);
    let m = if one { numbers(output) / n.max(1) } else { last(output, 1) };
    Cost { gemm: Some(Gemm { m, n, k }), ..Cost::of_products(arguments, numbers(output), k, None) }
}

/// The weight has inputs, then outputs.
pub(super) fn linear(arguments: &Arguments<'_>) -> Cost {
    product_of_rows(arguments, arguments.input(2))
}

/// Grad and weight are in the places of input and weight.
pub(super) fn linear_x_backward(arguments: &Arguments<'_>) -> Cost {
    product_of_rows(arguments, None)
}

fn product_of_rows(arguments: &Arguments<'_>, bias: Option<&TensorIr>) -> Cost {
    let (Some(input), Some(output)) = (arguments.input(0), arguments.output()) else { return unknown(arguments) };
    let (n, k) = (last(output, 0), last(input, 0));
    let gemm = Gemm { m: numbers(output) / n.max(1), n, k };
    Cost { gemm: Some(gemm), ..Cost::of_products(arguments, numbers(output), k, bias) }
}

pub(super) fn linear_weight_backward(arguments: &Arguments<'_>) -> Cost {
    let (Some(input), Some(output)) = (arguments.input(0), arguments.output()) else { return unknown(arguments) };
    let m = last(input, 0);
    let (n, k) = (numbers(output) / m.max(1), numbers(input) / m.max(1));
    Cost { gemm: Some(Gemm { m, n, k }), ..Cost::of_products(arguments, numbers(output), k, None) }
}

/// Sums the gradient, which is the last input, as the other end is only there for its shape.
pub(super) fn bias_backward(arguments: &Arguments<'_>) -> Cost {
    let grad = arguments.input(2).or(arguments.input(0));
    let moved = grad.into_iter().chain(arguments.outputs()).fold(0, |sum, tensor| bytes(tensor).saturating_add(sum));
    Cost { bytes: moved, ..Cost::of_flops(arguments, grad.map_or(0, numbers)) }
}

/// The weight has out channels, in channels of a group, and the kernel.
pub(super) fn convolution(arguments: &Arguments<'_>) -> Cost {
    let outputs = arguments.output().map_or(0, numbers);
    Cost::of_products(arguments, outputs, of_each(arguments.input(1)), arguments.input(2))
}

/// Of the input, or of the weight, by the gradient of the output.
pub(super) fn convolution_backward(arguments: &Arguments<'_>) -> Cost {
    let outputs = arguments.input(2).map_or(0, numbers);
    Cost::of_grad(arguments, product([2, outputs, of_each(arguments.input(1))]))
}

/// Of input and weight, each as much as forward, and of the bias.
pub(super) fn deformable_backward(arguments: &Arguments<'_>) -> Cost {
    let outputs = arguments.input(3).map_or(0, numbers);
    let bias = if arguments.input(2).is_some() { outputs } else { 0 };
    Cost::of_flops(arguments, product([4, outputs, of_each(arguments.input(1))]).saturating_add(bias))
}

/// The weight has in channels, out channels of a group, and the kernel.
pub(super) fn transposed(arguments: &Arguments<'_>) -> Cost {
    let inputs = arguments.input(0).map_or(0, numbers);
    Cost::of_products(arguments, inputs, of_each(arguments.input(1)), arguments.input(2))
}

pub(super) fn transposed_weight_backward(arguments: &Arguments<'_>) -> Cost {
    let inputs = arguments.input(0).map_or(0, numbers);
    Cost::of_grad(arguments, product([2, inputs, of_each(arguments.input(1))]))
}

/// One for each number in each window.
pub(super) fn pools(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, product([arguments.times, arguments.output().map_or(0, numbers)]))
}

/// One for each number in each window, or only for one in each, by the gradient of the output.
pub(super) fn pools_backward(arguments: &Arguments<'_>) -> Cost {
    Cost::of_grad(arguments, product([arguments.times, arguments.input(1).map_or(0, numbers)]))
}

/// One for each number at either end.
pub(super) fn adapts(arguments: &Arguments<'_>) -> Cost {
    Cost::of_flops(arguments, ends(arguments, 0))
}

pub(super) fn adapts_backward(arguments: &Arguments<'_>) -> Cost {
    Cost::of_grad(arguments, ends(arguments, 1))
}

fn ends(arguments: &Arguments<'_>, place: usize) -> u64 {
    let ends = [arguments.input(place), arguments.output()].map(|end| end.map_or(0, numbers));
    ends[0].saturating_add(ends[1])
}

/// A sum of products with neighbours for each number that comes out.
pub(super) fn interpolates(arguments: &Arguments<'_>) -> Cost {
    Cost::of_products(arguments, arguments.output().map_or(0, numbers), arguments.times, None)
}

pub(super) fn interpolates_backward(arguments: &Arguments<'_>) -> Cost {
    Cost::of_grad(arguments, product([2, arguments.input(1).map_or(0, numbers), arguments.times]))
}

pub(super) fn layer_norm(arguments: &Arguments<'_>) -> Cost {
    let each = 6 + u64::from(arguments.input(2).is_some());
    Cost::of_flops(arguments, product([each, arguments.output().map_or(0, numbers)]))
}

/// Queries, keys and values have the length, then the size of a head.
pub(super) fn attention(arguments: &Arguments<'_>) -> Cost {
    let (Some(query), Some(key), Some(value)) = (arguments.input(0), arguments.input(1), arguments.input(2)) else {
        return unknown(arguments);
    };
    let rows = numbers(query) / last(query, 0).max(1);
    let sizes = last(query, 0).saturating_add(last(value, 0));
    let each = product([2, sizes]).saturating_add(6 + u64::from(arguments.input(4).is_some()));
    Cost::of_flops(arguments, product([rows, last(key, 1), each]))
}

/// Weights for one of what the first dimension counts.
fn of_each(weight: Option<&TensorIr>) -> u64 {
    weight.map_or(0, |weight| product(weight.shape.iter().skip(1).map(|&dim| dim as u64)))
}

/// A dimension, counted from the last.
fn last(tensor: &TensorIr, place: usize) -> u64 {
    tensor.shape.iter().rev().nth(place).map_or(1, |&dim| dim as u64)
}

fn is_float(tensor: &TensorIr) -> bool {
    tensor.dtype.is_float() || matches!(tensor.dtype, DType::QFloat(_))
}

fn numbers(tensor: &TensorIr) -> u64 {
    product(tensor.shape.iter().map(|&dim| dim as u64))
}

/// What a tensor takes. Of a quantized one, its values without the scales.
pub(crate) fn bytes(tensor: &TensorIr) -> u64 {
    match &tensor.dtype {
        DType::QFloat(scheme) => numbers(tensor).saturating_mul(scheme.size_bits_value() as u64).div_ceil(8),
        dtype => numbers(tensor).saturating_mul(dtype.size() as u64),
    }
}

fn product(factors: impl IntoIterator<Item = u64>) -> u64 {
    factors.into_iter().fold(1, u64::saturating_mul)
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.n, self.k)
    }
}
