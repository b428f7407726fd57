//! What is known of the modules of candle-nn by their type.

use crate::{
    Parameters,
    cost::{Cost, Formula, Gemm},
};
use candle_core::{Tensor, quantized::QMatMul};
use candle_nn::{
    BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Embedding, LayerNorm, Linear, PReLU, RmsNorm,
};
use std::any::Any;

/// A formula and parameters, as far as they are known.
#[derive(Debug, Default)]
pub(crate) struct Known {
    pub(crate) formula: Option<Formula>,
    /// Where it is another one in training.
    pub(crate) training: Option<Formula>,
    pub(crate) parameters: Option<Parameters>,
}

/// A weight's sizes, which are all that formulas need: a module may be dropped before its spans are.
struct Weight {
    dims: Vec<u64>,
    bytes: u64,
    has_bias: bool,
}

impl Known {
    pub(crate) fn of(module: &dyn Any) -> Self {
        if let Some(module) = module.downcast_ref::<Linear>() {
            Self::weighted(module.weight(), module.bias(), linear)
        } else if let Some(module) = module.downcast_ref::<Conv1d>() {
            Self::weighted(module.weight(), module.bias(), convolution)
        } else if let Some(module) = module.downcast_ref::<Conv2d>() {
            Self::weighted(module.weight(), module.bias(), convolution)
        } else if let Some(module) = module.downcast_ref::<ConvTranspose1d>() {
            Self::weighted(module.weight(), module.bias(), transposed)
        } else if let Some(module) = module.downcast_ref::<ConvTranspose2d>() {
            Self::weighted(module.weight(), module.bias(), transposed)
        } else if let Some(module) = module.downcast_ref::<Embedding>() {
            Self::embedding(module)
        } else if let Some(module) = module.downcast_ref::<LayerNorm>() {
            let each = if module.remove_mean() { 6 } else { 4 };
            Self::weighted(module.weight(), module.bias(), move |weight, _, output| {
                Cost::of_flops((each + u64::from(weight.has_bias)) * numbers(output))
            })
        } else if let Some(module) = module.downcast_ref::<RmsNorm>() {
            Self::weighted(module.weight(), None, |_, _, output| Cost::of_flops(4 * numbers(output)))
        } else if let Some(module) = module.downcast_ref::<BatchNorm>() {
            Self::batch_norm(module)
        } else if let Some(module) = module.downcast_ref::<PReLU>() {
            Self { parameters: Some(Parameters::of([module.weight()])), ..Self::default() }
        } else if let Some(module) = module.downcast_ref::<QMatMul>() {
            Self::quantized(module)
        } else {
            Self::default()
        }
    }

    fn weighted(
        weight: &Tensor,
        bias: Option<&Tensor>,
        cost: impl Fn(&Weight, &[&Tensor], &Tensor) -> Cost + Send + Sync + 'static,
    ) -> Self {
        let parameters = Parameters::of([Some(weight), bias].into_iter().flatten());
        let dims = weight.dims().iter().map(|&dim| dim as u64).collect();
        let weight = Weight { dims, bytes: parameters.bytes, has_bias: bias.is_some() };
        let formula = Formula::new(move |inputs, output| {
            let bytes = weight.bytes + bytes_of(inputs) + bytes_of(&[output]);
            Cost { bytes: Some(bytes), ..cost(&weight, inputs, output) }
        });
        Self { formula: Some(formula), training: None, parameters: Some(parameters) }
    }

    fn embedding(module: &Embedding) -> Self {
        // Of the table only the rows that are asked for are read.
        let bytes = |inputs: &[&Tensor], output: &Tensor| bytes_of(inputs) + 2 * bytes_of(&[output]);
        let formula =
            Formula::new(move |inputs, output| Cost { bytes: Some(bytes(inputs, output)), ..Cost::default() });
        let parameters = Parameters::of([module.embeddings()]);
        Self { formula: Some(formula), training: None, parameters: Some(parameters) }
    }

    fn batch_norm(module: &BatchNorm) -> Self {
        let affine = module.weight_and_bias();
        let parameters = Parameters::of(affine.into_iter().flat_map(|(weight, bias)| [weight, bias]));
        let each = if affine.is_some() { 4 } else { 2 };
        let formula = |each| Some(Formula::new(move |_, output| Cost::of_flops(each * numbers(output))));
        Self { formula: formula(each), training: formula(each + 3), parameters: Some(parameters) }
    }

    fn quantized(module: &QMatMul) -> Self {
        let (dims, bytes) = match module {
            QMatMul::QTensor(weight) => (weight.shape().dims().to_vec(), weight.storage_size_in_bytes()),
            QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => {
                (weight.dims().to_vec(), weight.elem_count() * weight.dtype().size_in_bytes())
            }
        };
        let parameters = Parameters { count: dims.iter().product::<usize>() as u64, bytes: bytes as u64 };
        let weight =
            Weight { dims: dims.into_iter().map(|dim| dim as u64).collect(), bytes: parameters.bytes, has_bias: false };
        let formula = Formula::new(move |inputs, output| {
            let bytes = weight.bytes + bytes_of(inputs) + bytes_of(&[output]);
            Cost { bytes: Some(bytes), ..linear(&weight, inputs, output) }
        });
        Self { formula: Some(formula), training: None, parameters: Some(parameters) }
    }
}

fn linear(weight: &Weight, _: &[&Tensor], output: &Tensor) -> Cost {
    let &[n, k] = weight.dims.as_slice() else { return Cost::default() };
    let gemm = Gemm { m: numbers(output) / n.max(1), n, k };
    Cost { flops: numbers(output) * (2 * k + u64::from(weight.has_bias)), ..Cost::of_gemm(gemm) }
}

/// The weight has out channels, in channels of a group, and the kernel.
fn convolution(weight: &Weight, _: &[&Tensor], output: &Tensor) -> Cost {
    let of_each: u64 = weight.dims.iter().skip(1).product();
    Cost::of_flops(numbers(output) * (2 * of_each + u64::from(weight.has_bias)))
}

/// The weight has in channels, out channels of a group, and the kernel.
fn transposed(weight: &Weight, inputs: &[&Tensor], output: &Tensor) -> Cost {
    let of_each: u64 = weight.dims.iter().skip(1).product();
    let inputs: u64 = inputs.iter().map(|input| numbers(input)).sum();
    Cost::of_flops(2 * inputs * of_each + if weight.has_bias { numbers(output) } else { 0 })
}

fn numbers(tensor: &Tensor) -> u64 {
    tensor.elem_count() as u64
}

fn bytes_of(tensors: &[&Tensor]) -> u64 {
    tensors.iter().map(|tensor| numbers(tensor) * tensor.dtype().size_in_bytes() as u64).sum()
}
