//! Parts that the trainings share: MLPs, a CNN, and the end of a step.

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{AdamW, Init, Module, Optimizer, SGD, VarBuilder, VarMap, loss, var_builder::SimpleBackend};
use kernspan_candle::{
    Profiled, data,
    nn::{Conv2d, Conv2dConfig, Linear, conv2d, linear, linear_no_bias},
};
use tracing::info_span;

/// The learning rate of all trainings. They learn nothing, as data and labels are random.
const RATE: f64 = 1e-4;

/// Makes the variables of a model that is trained.
pub(crate) fn trained<'a>(device: &Device) -> (VarMap, VarBuilder<'a>) {
    let variables = VarMap::new();
    let vb = VarBuilder::from_varmap(&variables, DType::F32, device);
    (variables, vb)
}

/// Returns random weights that are not trained.
pub(crate) fn frozen<'a>(dtype: DType, device: &Device) -> VarBuilder<'a> {
    VarBuilder::from_backend(Box::new(RandomWeights), dtype, device.clone())
}

struct RandomWeights;

impl SimpleBackend for RandomWeights {
    fn get(&self, shape: Shape, _: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        init.var(shape, dtype, device).map(|weights| weights.as_detached_tensor())
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} has no shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

pub(crate) fn sgd(variables: &VarMap) -> Result<Profiled<SGD>> {
    Ok(Profiled::new(SGD::new(variables.all_vars(), RATE)?))
}

pub(crate) fn adamw(variables: &VarMap) -> Result<Profiled<AdamW>> {
    Ok(Profiled::new(AdamW::new_lr(variables.all_vars(), RATE)?))
}

/// Computes the loss, and runs the backward pass and the optimizer.
pub(crate) fn learn(optimizer: &mut impl Optimizer, logits: &Tensor, labels: &Tensor) -> Result<()> {
    let loss = info_span!("loss").in_scope(|| loss::cross_entropy(logits, labels))?;
    optimizer.backward_step(&loss)
}

/// Returns how many of the rows have their highest logit at the label.
pub(crate) fn hits(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.detach().argmax(1)?.eq(labels)?.to_dtype(DType::F32)?.sum_all()
}

/// Batches of random numbers and labels that are on the device already, in spans of the name `data`.
pub(crate) fn batches(
    shape: &[usize],
    classes: usize,
    device: &Device,
) -> Result<impl Iterator<Item = (Tensor, Tensor)> + use<>> {
    let batch = |seed: usize| -> Result<(Tensor, Tensor)> {
        let labels: Vec<u32> = (0..shape[0]).map(|row| ((row * 7 + seed) % classes) as u32).collect();
        Ok((Tensor::randn(0_f32, 1.0, shape, device)?, Tensor::from_vec(labels, shape[0], device)?))
    };
    let batches = (0..4).map(batch).collect::<Result<Vec<_>>>()?;
    Ok(data((0..).map(move |step: usize| batches[step % batches.len()].clone())))
}

/// Returns the next batch of an iterator that never ends.
pub(crate) fn next<T>(batches: &mut impl Iterator<Item = T>) -> Result<T> {
    batches.next().ok_or_else(|| candle_core::Error::msg("no batch"))
}

/// Linear layers with an activation after each, and a head.
#[derive(Debug)]
pub(crate) struct Mlp {
    layers: Vec<Linear>,
    head: Linear,
}

impl Mlp {
    /// Makes layers of these numbers of inputs and outputs; the last is the head.
    pub(crate) fn new(widths: &[usize], vb: &VarBuilder<'_>) -> Result<Self> {
        let [inner @ .., classes] = widths else { candle_core::bail!("no widths") };
        // Without biases: adding one is a kernel of its own, which a fused activation would have to include.
        let layer =
            |(index, pair): (usize, &[usize])| linear_no_bias(pair[0], pair[1], vb.pp(format!("layers.{index}")));
        Ok(Self {
            layers: inner.windows(2).enumerate().map(layer).collect::<Result<_>>()?,
            head: linear_no_bias(inner[inner.len() - 1], *classes, vb.pp("head"))?,
        })
    }

    /// Runs the layers, without the head.
    pub(crate) fn features(&self, x: &Tensor, activation: fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| activation(&layer.forward(&x)?))
    }

    /// Runs the layers with a residual connection around each, without the head.
    pub(crate) fn residual_features(&self, x: &Tensor) -> Result<Tensor> {
        self.layers.iter().try_fold(x.clone(), |x, layer| &x + layer.forward(&x)?.relu()?)
    }

    /// Runs the head.
    pub(crate) fn head(&self, features: &Tensor) -> Result<Tensor> {
        self.head.forward(features)
    }
}

impl Module for Mlp {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head(&self.features(x, Tensor::relu)?)
    }
}

/// Convolutions, each followed by ReLU and pooling, and a linear layer.
#[derive(Debug)]
pub(crate) struct Cnn {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Cnn {
    /// The number of classes.
    pub(crate) const CLASSES: usize = 10;

    /// Makes a network for colour images of this width and height.
    pub(crate) fn new(pixels: usize, channels: &[usize], vb: &VarBuilder<'_>) -> Result<Self> {
        let config = Conv2dConfig { padding: 1, ..Default::default() };
        let mut inputs = 3;
        let mut convolutions = Vec::new();
        for (index, &outputs) in channels.iter().enumerate() {
            convolutions.push(conv2d(inputs, outputs, 3, config, vb.pp(format!("conv.{index}")))?);
            inputs = outputs;
        }
        let side = pixels >> channels.len();
        Ok(Self { convolutions, head: linear(inputs * side * side, Self::CLASSES, vb.pp("head"))? })
    }
}

impl Module for Cnn {
    #[tracing::instrument(name = "forward", skip_all)]
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let block = |x: Tensor, layer: &Conv2d| layer.forward(&x)?.relu()?.max_pool2d(2);
        let x = self.convolutions.iter().try_fold(images.clone(), block)?;
        self.head.forward(&x.flatten_from(1)?)
    }
}
