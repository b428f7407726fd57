use crate::graph;
use candle_core::{Result, Tensor, Var, backprop::GradStore};
use candle_nn::Optimizer;
use std::ops::{Deref, DerefMut};
use tracing::field;

/// An optimizer whose backward pass and steps are spans: [`Profiled::BACKWARD`] and [`Profiled::OPTIMIZER`].
///
/// Of the optimizer inside only `step` is called, also where it has a `backward_step` of its own: that could not be told apart.
///
/// The backward pass says how many FLOPs it took, as far as the forward pass was [`Traced`](crate::Traced) on the same thread: see
/// [`flops`](crate::flops). To have the end of the optimizer's step end the profiler's step, build the profiler with
/// `.step_on(Profiled::OPTIMIZER)`; it needs no `profiler.step()` then.
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
    /// The name of the spans of backward passes.
    pub const BACKWARD: &'static str = "backward";
    /// The name of the spans of the optimizer's steps.
    pub const OPTIMIZER: &'static str = "optimizer";
}

impl<O> Profiled<O> {
    /// Wraps an optimizer.
    pub fn new(optimizer: O) -> Self {
        Self(optimizer)
    }

    /// The optimizer.
    pub fn into_inner(self) -> O {
        self.0
    }
}

/// The gradients of a loss, in a span: `loss.backward()` for loops that call [`Optimizer::step`] themselves.
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
    if let Some(backward) = graph::backward_of(loss).filter(|_| !span.is_disabled()) {
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

/// The optimizer's own methods, as `AdamW::params`.
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
