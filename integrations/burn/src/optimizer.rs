use crate::Profiled;
use burn::{
    lr_scheduler::module_lr_scheduler::ModuleLearningRate,
    module::Module,
    optim::{GradientsParams, ModuleOptimizer, MultiGradientsParams},
    tensor::{Gradients, Tensor},
};

/// The gradients of a loss, in a span: `loss.backward()`, also inside of a `TrainStep`, where it tells the backward pass from the
/// forward pass.
///
/// # Panics
///
/// Where [`Tensor::backward`] does.
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
pub(crate) fn optimizing<T>(step: impl FnOnce() -> T) -> T {
    tracing::info_span!(Profiled::OPTIMIZER).in_scope(step)
}

impl Profiled<ModuleOptimizer> {
    /// [`ModuleOptimizer::step`], in a span.
    pub fn step<M: Module>(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> M {
        optimizing(|| self.0.step(learning_rate, module, gradients))
    }

    /// [`ModuleOptimizer::step_multi`], in a span.
    pub fn step_multi<M: Module>(
        &mut self,
        learning_rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: MultiGradientsParams,
    ) -> M {
        optimizing(|| self.0.step_multi(learning_rate, module, gradients))
    }
}
