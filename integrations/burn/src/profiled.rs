use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// An optimizer or a model whose work is spans.
///
/// Around a [`ModuleOptimizer`](burn::optim::ModuleOptimizer), for training loops of your own, each step is a span,
/// [`Profiled::OPTIMIZER`]; [`backward`](crate::backward) is the backward pass.
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
/// Around a model, with the feature `train`, it is a model for burn-train's `Learner`: its training steps, its inference steps and the
/// optimizer's steps are spans. It has the paths, the parameters and the records of the model inside, so checkpoints are the same.
#[derive(Clone, Debug)]
pub struct Profiled<T>(pub(crate) T);

impl Profiled<()> {
    /// The name of the spans of backward passes.
    pub const BACKWARD: &'static str = "backward";
    /// The name of the spans of the optimizer's steps.
    pub const OPTIMIZER: &'static str = "optimizer";
    /// The name of the spans of a model's training steps: its forward and backward pass.
    pub const TRAIN_STEP: &'static str = "train_step";
    /// The name of the spans of a model's inference steps.
    pub const INFERENCE_STEP: &'static str = "inference_step";
    /// The name of the spans of what a training loop does with a batch, for [`step_on`](kernspan::ProfilerBuilder::step_on).
    pub const ITERATION: &'static str = "iteration";
    /// The name of the spans of validation, all of an epoch's.
    pub const VALIDATION: &'static str = "validation";
}

impl<T> Profiled<T> {
    /// Wraps an optimizer or a model.
    pub fn new(inner: T) -> Self {
        Self(inner)
    }

    /// The optimizer or the model.
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// The methods of what is inside, as a model's `forward`.
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
