use crate::{
    layer_cost::LayerCost,
    op::Op,
    parameters::{Parameters, make_counted},
};
use candle_core::{Result, Tensor};
use candle_nn::{BatchNorm, Module, ModuleT, VarBuilder};
use std::ops::Deref;

/// A wrapper that runs a module in a span; [`Op`] lists the span's fields.
///
/// FLOPs and parameters of candle-nn's modules are known by their type; [`flops`](crate::flops) has the formulas. For
/// your own modules, [`at`](Self::at) counts the parameters, and the FLOPs are those of the modules inside, or the
/// result of a function given to [`flops`](Self::flops).
///
/// ```
/// use candle_core::{DType, Device, Result, Tensor};
/// use candle_nn::{Activation, Module, VarBuilder, seq};
/// use kernspan_candle::{Traced, nn};
///
/// fn block(vb: VarBuilder) -> Result<impl Module + use<>> {
///     let (up, down) = (nn::linear(64, 256, vb.pp("up"))?, nn::linear(256, 64, vb.pp("down"))?);
///     Ok(seq().add(up).add(Activation::Gelu).add(down))
/// }
///
/// let vb = VarBuilder::zeros(DType::F32, &Device::Cpu);
/// let block = Traced::at(vb.pp("layers.0"), block)?;
/// let y = block.forward(&Tensor::zeros((8, 64), DType::F32, &Device::Cpu)?)?;
/// assert_eq!(block.parameters().unwrap().count, 64 * 256 + 256 + 256 * 64 + 64);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Traced<M> {
    module: M,
    op: Op,
}

/// A wrapper that runs a [`ModuleT`] in a span, as [`Traced`] does: for candle-nn's `BatchNorm` and `Dropout`, and for
/// your own modules that behave differently in training.
///
/// ```
/// use candle_nn::{Dropout, ModuleT};
/// use kernspan_candle::TracedT;
///
/// let dropout = TracedT::new("layers.0.dropout", Dropout::new(0.1));
/// # let x = candle_core::Tensor::zeros(8, candle_core::DType::F32, &candle_core::Device::Cpu)?;
/// dropout.forward_t(&x, true)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TracedT<M> {
    module: M,
    evaluation: Op,
    training: Op,
}

impl<M: 'static> Traced<M> {
    /// Wraps a module that is at this path of the model.
    pub fn new(path: impl Into<String>, module: M) -> Self {
        let LayerCost { formula, parameters, .. } = LayerCost::of(&module);
        Self { module, op: Op::new(path).formula(formula).maybe_parameters(parameters) }
    }

    /// Makes a module with a builder and wraps it, at the builder's path. Its parameters are the tensors that it
    /// requests from the builder.
    pub fn at(vb: VarBuilder<'_>, make: impl FnOnce(VarBuilder<'_>) -> Result<M>) -> Result<Self> {
        let path = vb.prefix();
        let (module, parameters) = make_counted(vb, make)?;
        let traced = Self::new(path, module);
        Ok(Self { op: traced.op.parameters(parameters), ..traced })
    }
}

impl<M> Traced<M> {
    /// Sets the name of the spans. By default, the end of the path.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { op: self.op.named(name), ..self }
    }

    /// Sets the function that returns the FLOPs: see [`Op::flops`]. By default, the formulas of candle-nn's modules.
    #[must_use]
    pub fn flops(self, flops: impl Fn(&[&Tensor], &Tensor) -> u64 + Send + Sync + 'static) -> Self {
        Self { op: self.op.flops(flops), ..self }
    }

    /// Returns the number of parameters, if it is known.
    pub fn parameters(&self) -> Option<Parameters> {
        self.op.parameters
    }

    /// Returns the module.
    pub fn into_inner(self) -> M {
        self.module
    }

    /// Returns the path in the model.
    pub fn path(&self) -> &str {
        self.op.path()
    }
}

impl<M: 'static> TracedT<M> {
    /// Wraps a module that is at this path of the model.
    pub fn new(path: impl Into<String>, module: M) -> Self {
        let LayerCost { formula, training, parameters } = LayerCost::of(&module);
        let op = Op::new(path).maybe_parameters(parameters);
        let training = training.or_else(|| formula.clone());
        Self { module, training: op.clone().formula(training), evaluation: op.formula(formula) }
    }

    /// Makes a module with a builder and wraps it, at the builder's path. Its parameters are the tensors that it
    /// requests from the builder, except for candle-nn's own modules: some tensors of `BatchNorm` are not parameters.
    pub fn at(vb: VarBuilder<'_>, make: impl FnOnce(VarBuilder<'_>) -> Result<M>) -> Result<Self> {
        let path = vb.prefix();
        let (module, requested) = make_counted(vb, make)?;
        let traced = Self::new(path, module);
        let parameters = traced.parameters().unwrap_or(requested);
        let [evaluation, training] = [traced.evaluation, traced.training].map(|op| op.parameters(parameters));
        Ok(Self { evaluation, training, module: traced.module })
    }
}

impl TracedT<BatchNorm> {
    /// Runs [`BatchNorm::forward_train`] in a span.
    pub fn forward_train(&self, xs: &Tensor) -> Result<Tensor> {
        self.forward(xs, true)
    }
}

impl<M> TracedT<M> {
    /// Sets the name of the spans. By default, the end of the path.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { training: self.training.named(&name), evaluation: self.evaluation.named(name), ..self }
    }

    /// Returns the path in the model.
    pub fn path(&self) -> &str {
        self.evaluation.path()
    }

    /// Returns the number of parameters, if it is known.
    pub fn parameters(&self) -> Option<Parameters> {
        self.evaluation.parameters
    }

    /// Returns the module.
    pub fn into_inner(self) -> M {
        self.module
    }
}

impl<M: Module> Traced<M> {
    /// Runs [`Module::forward`] in a span. This method takes precedence over the module's own `forward`, which would
    /// bypass the span.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.op.run(&[xs], || self.module.forward(xs))
    }
}

impl<M: ModuleT> TracedT<M> {
    /// Runs [`ModuleT::forward_t`] in a span. `Dropout` calls its own method `forward`, so this one has that name, too.
    pub fn forward(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        let op = if train { &self.training } else { &self.evaluation };
        op.run(&[xs], || self.module.forward_t(xs, train))
    }
}

impl<M: Module> Module for Traced<M> {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.forward(xs)
    }
}

impl<M: ModuleT> ModuleT for TracedT<M> {
    fn forward_t(&self, xs: &Tensor, train: bool) -> Result<Tensor> {
        self.forward(xs, train)
    }
}

/// Gives access to the module's own methods, such as `Linear::weight`.
impl<M> Deref for Traced<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

/// Gives access to the module's own methods, such as `BatchNorm::running_mean`.
impl<M> Deref for TracedT<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}
