//! Parts that the trainings share: an MLP, the optimizer, and batches.

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig,
        loss::{CrossEntropyLoss, CrossEntropyLossConfig},
    },
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{Device, Distribution, Int, Tensor, TensorData, activation::relu},
};
use kernspan_burn::data;
use tracing::{info_span, instrument};

/// Linear layers with ReLU after each, and a head.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    layers: Vec<Linear>,
    head: Linear,
}

impl Mlp {
    pub(crate) fn new(width: usize, layers: usize, classes: usize, device: &Device) -> Self {
        let layer = |_| LinearConfig::new(width, width).init(device);
        Self {
            layers: (0..layers).map(layer).collect(),
            head: LinearConfig::new(width, classes).with_bias(false).init(device),
        }
    }

    #[instrument(skip_all)]
    pub(crate) fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let x = self.layers.iter().fold(x, |x, layer| info_span!("layer").in_scope(|| relu(layer.forward(x))));
        self.head.forward(x)
    }
}

/// A model with its optimizer.
pub(crate) struct Trainer<M> {
    model: Option<M>,
    optimizer: ModuleOptimizer,
    loss: CrossEntropyLoss,
}

impl<M: Module> Trainer<M> {
    pub(crate) fn new(model: M, device: &Device) -> Self {
        Self {
            model: Some(model),
            optimizer: AdamWConfig::new().init(),
            loss: CrossEntropyLossConfig::new().init(device),
        }
    }

    pub(crate) fn model(&self) -> &M {
        self.model.as_ref().expect("a model")
    }

    #[instrument(skip_all)]
    pub(crate) fn loss(&self, logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1> {
        self.loss.forward(logits, labels)
    }

    /// Runs the backward pass and the optimizer.
    pub(crate) fn learn(&mut self, loss: &Tensor<1>) {
        let gradients = self.gradients(loss);
        self.update(gradients);
    }

    /// Runs the backward pass.
    pub(crate) fn gradients(&self, loss: &Tensor<1>) -> GradientsParams {
        info_span!("backward").in_scope(|| GradientsParams::from_grads(loss.backward(), self.model()))
    }

    /// Runs the optimizer.
    pub(crate) fn update(&mut self, gradients: GradientsParams) {
        let model = self.model.take().expect("a model");
        self.model = Some(info_span!("optimizer").in_scope(|| self.optimizer.step(1e-4, model, gradients)));
    }
}

/// Batches of random numbers and labels that are on the device already, in spans of the name `data`.
pub(crate) fn batches<const D: usize>(
    shape: [usize; D],
    classes: usize,
    device: &Device,
) -> impl Iterator<Item = (Tensor<D>, Tensor<1, Int>)> + use<D> {
    let rows = shape[0];
    let batch = |seed: usize| {
        let labels: Vec<i32> = (0..rows).map(|row| ((row * 7 + seed) % classes) as i32).collect();
        let x = Tensor::random(shape, Distribution::Normal(0.0, 1.0), device);
        (x, Tensor::from_data(TensorData::new(labels, [rows]), device))
    };
    let batches: Vec<(Tensor<D>, Tensor<1, Int>)> = (0..4).map(batch).collect();
    data((0..).map(move |step: usize| batches[step % batches.len()].clone()))
}

/// Returns how many of the rows have their highest logit at the label.
pub(crate) fn hits(logits: Tensor<2>, labels: Tensor<1, Int>) -> Tensor<1, Int> {
    logits.argmax(1).flatten::<1>(0, 1).equal(labels).int().sum()
}
