use crate::forward_log;
use candle_core::{Result, Tensor, Var, backprop::GradStore};
use candle_nn::Optimizer;
use std::ops::{Deref, DerefMut};
use tracing::field;

/// A wrapper that runs an optimizer's backward pass and step in spans, [`Profiled::BACKWARD`] and
/// [`Profiled::OPTIMIZER`].
///
/// Only `step` of the wrapped optimizer is called, even if it implements `backward_step`, which runs both in one call.
///
/// The span of the backward pass has the FLOPs of the ops that were [`Traced`](crate::Traced) in the forward pass on
/// the same thread: see [`flops`](crate::flops). To end the profiler's step with the optimizer's step, build the
/// profiler with `.step_on(Profiled::OPTIMIZER)`; then `profiler.step()` is not needed.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap};
/// use kernspan_candle::{Profiled, nn};
///
/// let variables = VarMap::new();
/// let model = nn::linear(4, 1, VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu))?;
/// let mut optimizer = Profiled::new(AdamW::new(variables.all_vars(), ParamsAdamW::default())?);
///
/// let x = Tensor::ones((8, 4), DType::F32, &Device::Cpu)?;
/// let loss = model.forward(&x)?.sqr()?.mean_all()?;
/// optimizer.backward_step(&loss)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Profiled<O>(O);

impl Profiled<()> {
    /// The span name of backward passes.
    pub const BACKWARD: &'static str = "backward";
    /// The span name of the optimizer's steps.
    pub const OPTIMIZER: &'static str = "optimizer";
}

impl<O> Profiled<O> {
    /// Wraps an optimizer.
    pub fn new(optimizer: O) -> Self {
        Self(optimizer)
    }

    /// Returns the optimizer.
    pub fn into_inner(self) -> O {
        self.0
    }
}

/// Runs `loss.backward()` in a span, for loops that call [`Optimizer::step`] themselves.
///
/// ```
/// # use candle_core::{DType, Device, Var};
/// let x = Var::zeros(4, DType::F32, &Device::Cpu)?;
/// let gradients = kernspan_candle::backward(&x.sqr()?.sum_all()?)?;
/// assert!(gradients.get(&x).is_some());
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    let span = tracing::info_span!(Profiled::BACKWARD, op.flops = field::Empty, op.compute = field::Empty);
    if let Some(backward) = forward_log::backward_cost(loss).filter(|_| !span.is_disabled()) {
        span.record("op.flops", backward.flops);
        span.record("op.compute", backward.compute);
    }
    span.in_scope(|| loss.backward())
}

impl<O: Optimizer> Optimizer for Profiled<O> {
    type Config = O::Config;

    fn new(variables: Vec<Var>, config: Self::Config) -> Result<Self> {
        O::new(variables, config).map(Self)
    }

    fn step(&mut self, gradients: &GradStore) -> Result<()> {
        tracing::info_span!(Profiled::OPTIMIZER).in_scope(|| self.0.step(gradients))
    }

    fn learning_rate(&self) -> f64 {
        self.0.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.0.set_learning_rate(rate);
    }

    fn backward_step(&mut self, loss: &Tensor) -> Result<()> {
        let gradients = backward(loss)?;
        self.step(&gradients)
    }
}

/// Gives access to the optimizer's own methods, such as `AdamW::params`.
impl<O> Deref for Profiled<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.0
    }
}

impl<O> DerefMut for Profiled<O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.0
    }
}
