//! Optimizers whose steps are spans, and backward passes.

use burn::{
    lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams},
    tensor::{Gradients, Tensor},
};
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// A wrapper that runs the steps of an optimizer or a model in spans.
///
/// Around a [`ModuleOptimizer`](burn::optim::ModuleOptimizer), for your own training loops, each step is a span
/// [`Profiled::OPTIMIZER`]. The function [`backward`](crate::backward) does the same for the backward pass.
///
/// ```
/// use burn::{nn::LinearConfig, optim::{AdamConfig, GradientsParams}, tensor::{Device, Tensor}};
/// use kernspan_burn::{Profiled, backward};
///
/// let device = Device::flex().autodiff();
/// let mut model = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = Profiled::new(AdamConfig::new().init());
///
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).mean();
/// let gradients = GradientsParams::from_grads(backward(&loss), &model); // was loss.backward()
/// model = optimizer.step(1e-3, model, gradients);
/// ```
///
/// Around a model, with the feature `train`, it is a model for burn-train's `Learner`, whose training steps, inference
/// steps and optimizer steps are spans. It has the paths, parameters and records of the wrapped model, so checkpoints
/// are the same.
#[derive(Clone, Debug)]
pub struct Profiled<T>(pub(crate) T);

impl Profiled<()> {
    /// The span name of backward passes.
    pub const BACKWARD: &'static str = "backward";
    /// The span name of the optimizer's steps.
    pub const OPTIMIZER: &'static str = "optimizer";
    /// The span name of a model's training steps, each a forward and a backward pass.
    pub const TRAIN_STEP: &'static str = "train_step";
    /// The span name of a model's inference steps.
    pub const INFERENCE_STEP: &'static str = "inference_step";
    /// The span name of a training loop's iterations, for [`step_on`](kernspan::ProfilerBuilder::step_on).
    pub const ITERATION: &'static str = "iteration";
    /// The span name of validation, one span for each epoch.
    pub const VALIDATION: &'static str = "validation";
}

impl<T> Profiled<T> {
    /// Wraps an optimizer or a model.
    pub fn new(inner: T) -> Self {
        Self(inner)
    }

    /// Returns the optimizer or the model.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// Gives access to the methods of the wrapped value, such as a model's `forward`.
impl<T> Deref for Profiled<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Profiled<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: fmt::Display> fmt::Display for Profiled<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Runs `loss.backward()` in a span. In a `TrainStep` it separates the backward pass from the forward pass.
///
/// # Panics
///
/// If [`Tensor::backward`] panics.
///
/// ```
/// # use burn::tensor::{Device, Tensor};
/// let x = Tensor::<1>::ones([4], &Device::flex().autodiff()).require_grad();
/// let gradients = kernspan_burn::backward(&(x.clone() * 3.0).sum());
/// assert_eq!(x.grad(&gradients).unwrap().sum().into_scalar::<f32>(), 12.0);
/// ```
pub fn backward<const D: usize>(loss: &Tensor<D>) -> Gradients {
    tracing::info_span!(Profiled::BACKWARD).in_scope(|| loss.backward())
}

/// Runs an optimizer's step in a span.
pub(crate) fn in_optimizer_span<T>(step: impl FnOnce() -> T) -> T {
    tracing::info_span!(Profiled::OPTIMIZER).in_scope(step)
}

impl Profiled<ModuleOptimizer> {
    /// Runs [`ModuleOptimizer::step`] in a span.
    pub fn step<M: Module>(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> M {
        in_optimizer_span(|| self.0.step(learning_rate, module, gradients))
    }

    /// Runs [`ModuleOptimizer::step_multi`] in a span.
    pub fn step_multi<M: Module>(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: MultiGradientsParams,
    ) -> M {
        in_optimizer_span(|| self.0.step_multi(learning_rate, module, gradients))
    }
}
