//! The training loop that the programs of this package measure: an MLP with GELU and AdamW, the same as in
//! `torch_mlp.py`.

#[path = "../../gpu/src/raw.rs"]
pub mod raw;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Activation, AdamW, Module, Optimizer, Sequential, VarBuilder, VarMap, loss};
use kernspan_candle::{Profiled, nn};

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

/// A model with its optimizer and a batch, made of Candle's own parts or of those of `kernspan-candle`.
#[allow(missing_debug_implementations, reason = "Candle's `Sequential` has none")]
pub struct Training<O> {
    model: Sequential,
    optimizer: O,
    x: Tensor,
    y: Tensor,
}

impl Training<AdamW> {
    /// Makes a training of Candle's own parts.
    ///
    /// # Errors
    ///
    /// If Candle fails.
    pub fn plain(size: Size, device: &Device) -> Result<Self> {
        let variables = VarMap::new();
        let vb = VarBuilder::from_varmap(&variables, DType::F32, device);
        let layer = |number: usize| candle_nn::linear(size.width, size.width, vb.pp(format!("layers.{number}")));
        let model = model(size, layer)?;
        Self::new(model, AdamW::new_lr(variables.all_vars(), 1e-3)?, size, device)
    }
}

impl Training<Profiled<AdamW>> {
    /// Makes a training of the parts of `kernspan-candle`.
    ///
    /// # Errors
    ///
    /// If Candle fails.
    pub fn traced(size: Size, device: &Device) -> Result<Self> {
        let variables = VarMap::new();
        let vb = VarBuilder::from_varmap(&variables, DType::F32, device);
        let layer = |number: usize| nn::linear(size.width, size.width, vb.pp(format!("layers.{number}")));
        let model = model(size, layer)?;
        Self::new(model, Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?), size, device)
    }
}

impl<O: Optimizer> Training<O> {
    fn new(model: Sequential, optimizer: O, size: Size, device: &Device) -> Result<Self> {
        let x = Tensor::randn(0_f32, 1.0, (size.batch, size.width), device)?;
        let y = Tensor::zeros(size.batch, DType::U32, device)?;
        Ok(Self { model, optimizer, x, y })
    }

    /// Runs one step.
    ///
    /// # Errors
    ///
    /// If Candle fails.
    pub fn step(&mut self) -> Result<()> {
        let logits = self.model.forward(&self.x)?;
        self.learn(&logits)
    }

    /// Runs one step, with the spans that a user would add.
    ///
    /// # Errors
    ///
    /// If Candle fails.
    #[tracing::instrument(name = "train_step", skip_all)]
    pub fn step_in_spans(&mut self) -> Result<()> {
        let logits = tracing::info_span!("forward").in_scope(|| self.model.forward(&self.x))?;
        self.learn(&logits)
    }

    fn learn(&mut self, logits: &Tensor) -> Result<()> {
        self.optimizer.backward_step(&loss::cross_entropy(logits, &self.y)?)
    }
}

fn model<M: Module + 'static>(size: Size, layer: impl Fn(usize) -> Result<M>) -> Result<Sequential> {
    (0..size.layers).try_fold(candle_nn::seq(), |model, number| Ok(model.add(layer(number)?).add(Activation::Gelu)))
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
