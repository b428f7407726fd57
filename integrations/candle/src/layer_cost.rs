//! Cost formulas and parameter counts of candle-nn's layers.

use crate::{
    cost::{Cost, Formula, Gemm},
    flops::{self, elements},
    parameters::Parameters,
};
use candle_core::{Tensor, quantized::QMatMul};
use candle_nn::{
    BatchNorm, Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Embedding, LayerNorm, Linear, PReLU, RmsNorm,
};
use std::any::Any;

/// The cost formulas and the parameters of a layer; each `None` if unknown.
#[derive(Debug, Default)]
pub(crate) struct LayerCost {
    pub(crate) formula: Option<Formula>,
    /// The formula in training, if it differs.
    pub(crate) training: Option<Formula>,
    pub(crate) parameters: Option<Parameters>,
}

/// The sizes of a weight. Formulas keep these instead of the tensor, because a module may be dropped before its spans
/// are.
struct Weight {
    dims: Vec<u64>,
    bytes: u64,
    has_bias: bool,
}

impl LayerCost {
    /// Looks a module up by its type; everything is `None` for a type that is not one of candle-nn's.
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
                Cost::of_flops(elements(output).saturating_mul(each + u64::from(weight.has_bias)))
            })
        } else if let Some(module) = module.downcast_ref::<RmsNorm>() {
            Self::weighted(module.weight(), None, |_, _, output| Cost::of_flops(elements(output).saturating_mul(4)))
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
        Self::of_weight(weight, parameters, cost)
    }

    fn of_weight(
        weight: Weight,
        parameters: Parameters,
        cost: impl Fn(&Weight, &[&Tensor], &Tensor) -> Cost + Send + Sync + 'static,
    ) -> Self {
        let formula = Formula::new(move |inputs, output| {
            let bytes = weight.bytes.saturating_add(bytes_of(inputs)).saturating_add(bytes_of(&[output]));
            Cost { bytes: Some(bytes), ..cost(&weight, inputs, output) }
        });
        Self { formula: Some(formula), training: None, parameters: Some(parameters) }
    }

    fn embedding(module: &Embedding) -> Self {
        // Only the rows that are looked up are read from the table.
        let bytes = |inputs: &[&Tensor], output: &Tensor| bytes_of(inputs).saturating_add(bytes_of(&[output, output]));
        let formula =
            Formula::new(move |inputs, output| Cost { bytes: Some(bytes(inputs, output)), ..Cost::default() });
        let parameters = Parameters::of([module.embeddings()]);
        Self { formula: Some(formula), training: None, parameters: Some(parameters) }
    }

    fn batch_norm(module: &BatchNorm) -> Self {
        let affine = module.weight_and_bias();
        let parameters = Parameters::of(affine.into_iter().flat_map(|(weight, bias)| [weight, bias]));
        let each = if affine.is_some() { 4 } else { 2 };
        let formula = |each| Some(Formula::new(move |_, output| Cost::of_flops(elements(output).saturating_mul(each))));
        Self { formula: formula(each), training: formula(each + 3), parameters: Some(parameters) }
    }

    fn quantized(module: &QMatMul) -> Self {
        let weight = match module {
            QMatMul::Tensor(weight) | QMatMul::TensorF16(weight) => return Self::weighted(weight, None, linear),
            QMatMul::QTensor(weight) => weight,
        };
        let dims: Vec<_> = weight.shape().dims().iter().map(|&dim| dim as u64).collect();
        let parameters = Parameters { count: dims.iter().product(), bytes: weight.storage_size_in_bytes() as u64 };
        Self::of_weight(Weight { dims, bytes: parameters.bytes, has_bias: false }, parameters, linear)
    }
}

fn linear(weight: &Weight, _: &[&Tensor], output: &Tensor) -> Cost {
    let &[n, k] = weight.dims.as_slice() else { return Cost::default() };
    let gemm = Gemm { m: elements(output) / n.max(1), n, k };
    Cost { gemm: Some(gemm), ..weight.products(elements(output), k, elements(output)) }
}

/// The weight's dimensions are the output channels, the input channels of a group, and the kernel.
fn convolution(weight: &Weight, _: &[&Tensor], output: &Tensor) -> Cost {
    weight.products(elements(output), weight.per_channel(), elements(output))
}

/// The weight's dimensions are the input channels, the output channels of a group, and the kernel.
fn transposed(weight: &Weight, inputs: &[&Tensor], output: &Tensor) -> Cost {
    let inputs = inputs.first().map_or(0, |input| elements(input));
    weight.products(inputs, weight.per_channel(), elements(output))
}

impl Weight {
    /// Returns the cost of `sums` sums of `products` products each, plus one addition per output if there is a bias.
    fn products(&self, sums: u64, products: u64, outputs: u64) -> Cost {
        let bias = if self.has_bias { outputs } else { 0 };
        let flops = flops::matmul_of(1, sums, 1, products).saturating_add(bias);
        Cost { is_products: true, ..Cost::of_flops(flops) }
    }

    /// Returns the number of weights per index of the first dimension.
    fn per_channel(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }
}

fn bytes_of(tensors: &[&Tensor]) -> u64 {
    let bytes = |tensor: &Tensor| elements(tensor).saturating_mul(tensor.dtype().size_in_bytes() as u64);
    tensors.iter().fold(0, |sum, tensor| sum.saturating_add(bytes(tensor)))
}
