//! The training loop that the programs of this package measure: an MLP with GELU and AdamW, the same as in
//! `benches/candle`.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig, loss::CrossEntropyLossConfig},
    optim::{AdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{Device, Distribution, Int, Tensor, activation::gelu},
};

/// Returns the GPU.
///
/// # Errors
///
/// If the package is built without the feature `cuda`.
pub fn gpu() -> Result<Device, Box<dyn std::error::Error>> {
    #[cfg(feature = "cuda")]
    return Ok(Device::cuda(0));
    #[cfg(not(feature = "cuda"))]
    Err("there is no GPU without the feature `cuda`".into())
}

/// The size of the model.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of inputs and of outputs of a layer.
    pub width: usize,
    /// The number of layers.
    pub layers: usize,
    /// The number of rows of a batch.
    pub batch: usize,
}

impl Size {
    /// The size that is measured.
    pub const FULL: Self = Self { width: 512, layers: 8, batch: 64 };
}

/// A model of linear layers with GELU after each.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    fn new(size: Size, device: &Device) -> Self {
        let layer = |_| LinearConfig::new(size.width, size.width).init(device);
        Self { layers: (0..size.layers).map(layer).collect() }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(x, |x, layer| gelu(layer.forward(x)))
    }

    /// Runs the model, with a span around each layer.
    fn forward_in_spans(&self, x: Tensor<2>) -> Tensor<2> {
        self.layers.iter().fold(x, |x, layer| tracing::info_span!("layer").in_scope(|| gelu(layer.forward(x))))
    }
}

/// A model with its optimizer and a batch.
#[allow(missing_debug_implementations, reason = "Burn's optimizers have none")]
pub struct Training {
    model: Option<Mlp>,
    optimizer: ModuleOptimizer,
    x: Tensor<2>,
    y: Tensor<1, Int>,
}

/// Makes a new training.
pub fn training(size: Size, device: &Device) -> Training {
    let device = device.clone().autodiff();
    Training {
        model: Some(Mlp::new(size, &device)),
        optimizer: AdamWConfig::new().init(),
        x: Tensor::random([size.batch, size.width], Distribution::Normal(0.0, 1.0), &device),
        y: Tensor::zeros([size.batch], &device),
    }
}

impl Training {
    /// Runs one step.
    pub fn step(&mut self) {
        let model = self.model.take().expect("a model");
        let logits = model.forward(self.x.clone());
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, self.y.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.optimizer.step(1e-3, model, gradients));
    }

    /// Runs one step, with the spans that a user would add.
    #[tracing::instrument(name = "train_step", skip_all)]
    pub fn step_in_spans(&mut self) {
        let model = self.model.take().expect("a model");
        let loss = tracing::info_span!("forward").in_scope(|| {
            let logits = model.forward_in_spans(self.x.clone());
            CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, self.y.clone())
        });
        let gradients =
            tracing::info_span!("backward").in_scope(|| GradientsParams::from_grads(loss.backward(), &model));
        self.model = Some(tracing::info_span!("optimizer").in_scope(|| self.optimizer.step(1e-3, model, gradients)));
    }
}

/// Returns the median.
///
/// # Panics
///
/// Without numbers.
pub fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// Returns the least number.
pub fn least(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::INFINITY, f64::min)
}
