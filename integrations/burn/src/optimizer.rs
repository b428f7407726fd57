use crate::profiled::Profiled;
use burn::{
    lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams},
    tensor::{Gradients, Tensor},
};

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
