use crate::{
    cost::{Cost, Formula},
    forward_log::{self, PassCost},
    parameters::Parameters,
    signature::{Arguments, Signature},
};
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{Span, field};

/// A part of a model that runs in a span. It is for code that is not a [`Module`](candle_nn::Module); modules are
/// wrapped by [`Traced`](crate::Traced), which contains an `Op`.
///
/// The span is created when the op first runs, and entered again while the shapes stay the same. So an op that is not
/// recorded costs a few hundred nanoseconds (`benches/README.md`).
///
/// The span therefore lives as long as the model, like the spans of candle-transformers. Other layers of the subscriber
/// see a span `op` without a parent, and a layer that exports spans on close never sees it close. A model that has run
/// under one subscriber keeps reporting to that subscriber; a model that has run without any reports to the next one.
///
/// Its fields have the names of `kernspan::trace::convention`:
///
/// | field | value |
/// |---|---|
/// | `op.name`, `op.module` | the name, and the path in the model |
/// | `op.device` | the device of the first input, such as `cuda:0` |
/// | `op.shape.input`, `op.dtype.input`, then `input1` to `input3` | shape and element type of the inputs |
/// | `op.shape.output`, `op.dtype.output` | shape and element type of the output |
/// | `op.flops`, `op.bytes` | FLOPs and bytes, if known; bytes are those of inputs, parameters and output, each once |
/// | `op.gemm` | m, n and k of the product of a linear layer |
/// | `op.compute` | `tf32`, if Candle computes products of `f32` with it |
/// | `op.parameters`, `op.parameter_bytes` | the number of parameters, and their bytes |
///
/// ```
/// use candle_core::{Device, Result, Tensor};
/// use kernspan_candle::{Op, flops};
///
/// struct Attention {
///     op: Op,
/// }
///
/// impl Attention {
///     fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
///         self.op.run(&[q, k, v], || {
///             let weights = candle_nn::ops::softmax_last_dim(&q.matmul(&k.t()?)?)?;
///             weights.matmul(v)
///         })
///     }
/// }
///
/// let attention = Attention { op: Op::new("layers.0.attention").flops(flops::attention) };
/// let x = Tensor::zeros((1, 8, 128, 64), candle_core::DType::F32, &Device::Cpu)?;
/// attention.forward(&x, &x, &x)?;
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Op {
    name: String,
    path: String,
    pub(crate) parameters: Option<Parameters>,
    formula: Option<Formula>,
    latest: Mutex<Option<Arc<Run>>>,
}

/// The inputs of the latest run, its span and its output.
#[derive(Debug)]
struct Run {
    inputs: Arguments,
    span: Span,
    /// The output of the latest run with these inputs.
    outcome: Mutex<Option<Arc<Outcome>>>,
}

/// The output of a run and its cost.
#[derive(Debug)]
struct Outcome {
    output: Signature,
    cost: Option<PassCost>,
}

impl Op {
    /// Makes an op at this path of the model, such as `layers.0.attention`. Its span is named by the end of the path,
    /// `attention`; if the end is a number, the name includes the part before it.
    pub fn new(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { name: name_of(&path), path, parameters: None, formula: None, latest: Mutex::default() }
    }

    /// Makes an op at the path of a builder.
    pub fn at(vb: &VarBuilder<'_>) -> Self {
        Self::new(vb.prefix())
    }

    /// Sets the name of the spans. By default, the end of the path.
    ///
    /// With `named("block")` all blocks of a model are one row of the report's table, and still one row each in a table
    /// that is grouped by module.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the function that returns the FLOPs of a run, given its inputs and its output: one of
    /// [`flops`](crate::flops), or your own. It is called once while the shapes stay the same. By default, FLOPs are
    /// not recorded.
    #[must_use]
    pub fn flops(self, flops: impl Fn(&[&Tensor], &Tensor) -> u64 + Send + Sync + 'static) -> Self {
        let formula = self.formula.clone();
        self.formula(Formula::new(move |inputs, output| {
            let cost = formula.as_ref().map(|formula| formula.apply(inputs, output)).unwrap_or_default();
            Cost { flops: flops(inputs, output), is_products: true, ..cost }
        }))
    }

    /// Sets the number of parameters. By default, it is not recorded.
    #[must_use]
    pub fn parameters(mut self, parameters: Parameters) -> Self {
        self.parameters = Some(parameters);
        self
    }

    pub(crate) fn maybe_parameters(mut self, parameters: Option<Parameters>) -> Self {
        self.parameters = parameters;
        self
    }

    pub(crate) fn formula(mut self, formula: impl Into<Option<Formula>>) -> Self {
        self.formula = formula.into();
        self
    }

    /// Returns the name of the spans.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path in the model.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Runs `forward`, which computes one tensor from `inputs`, in a span. The shapes of up to four inputs are
    /// recorded.
    pub fn run(&self, inputs: &[&Tensor], forward: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let Some(run) = self.run_of(inputs) else { return forward() };
        let latest = run.outcome();
        let position = forward_log::position();
        // The output is recorded before the span is exited, because another thread may be inside the same span.
        let _entered = run.span.enter();
        let output = forward()?;
        let cost = match latest {
            Some(latest) if latest.output.matches(&output) => latest.cost,
            _ => self.record_output(&run, inputs, &output),
        };
        forward_log::add(position, &output, cost);
        Ok(output)
    }

    /// Returns the latest run if its inputs have the same signatures, or else a new one; `None` if the span is
    /// disabled.
    fn run_of(&self, inputs: &[&Tensor]) -> Option<Arc<Run>> {
        let mut latest = lock(&self.latest);
        if let Some(run) = &*latest
            && run.inputs.matches(inputs)
        {
            return Some(Arc::clone(run));
        }
        let span = self.span(inputs);
        // A disabled span is not kept, because a subscriber may be installed before the next run.
        let run = (!span.is_disabled()).then(|| Run { inputs: Arguments::of(inputs), span, outcome: Mutex::default() });
        *latest = run.map(Arc::new);
        latest.clone()
    }

    /// Creates the span, with the fields that are known before the run.
    ///
    /// The span has no parent. It is kept, so a parent would be kept open, too, and `step_on` waits for the close of
    /// such a span. The profiler takes the nesting of each run from the spans that are open at that time.
    fn span(&self, inputs: &[&Tensor]) -> Span {
        let shape = |index: usize| inputs.get(index).map(|input| field::debug(input.dims()));
        let dtype = |index: usize| inputs.get(index).map(|input| input.dtype().as_str());
        tracing::info_span!(
            parent: None,
            "op",
            op.name = self.name,
            op.module = (!self.path.is_empty()).then_some(self.path.as_str()),
            op.device = inputs.first().map(|input| field::display(Signature::device_of(input))),
            op.shape.input = shape(0),
            op.dtype.input = dtype(0),
            op.shape.input1 = shape(1),
            op.dtype.input1 = dtype(1),
            op.shape.input2 = shape(2),
            op.dtype.input2 = dtype(2),
            op.shape.input3 = shape(3),
            op.dtype.input3 = dtype(3),
            op.shape.output = field::Empty,
            op.dtype.output = field::Empty,
            op.compute = field::Empty,
            op.gemm = field::Empty,
            op.flops = field::Empty,
            op.bytes = field::Empty,
            op.parameters = self.parameters.map(|parameters| parameters.count),
            op.parameter_bytes = self.parameters.map(|parameters| parameters.bytes),
        )
    }

    /// Records the output and the cost in the span, and keeps them for the next run.
    fn record_output(&self, run: &Run, inputs: &[&Tensor], output: &Tensor) -> Option<PassCost> {
        let cost = self.formula.as_ref().map(|formula| formula.apply(inputs, output));
        run.span.record("op.shape.output", field::debug(output.dims()));
        run.span.record("op.dtype.output", output.dtype().as_str());
        if let Some(cost) = &cost {
            run.span.record("op.flops", cost.flops);
            if let Some(gemm) = cost.gemm {
                run.span.record("op.gemm", field::display(gemm));
            }
            if let Some(bytes) = cost.bytes {
                run.span.record("op.bytes", bytes);
            }
        }
        let cost = cost.map(|cost| {
            let compute = if cost.is_products { run.inputs.compute() } else { None };
            if let Some(compute) = compute {
                run.span.record("op.compute", compute);
            }
            PassCost { flops: cost.flops, compute: compute.unwrap_or(output.dtype().as_str()) }
        });
        *lock(&run.outcome) = Some(Arc::new(Outcome { output: Signature::of(output), cost }));
        cost
    }
}

impl Run {
    fn outcome(&self) -> Option<Arc<Outcome>> {
        lock(&self.outcome).clone()
    }
}

/// Locks a mutex and ignores poisoning: no value is left half written while a lock is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clone for Op {
    fn clone(&self) -> Self {
        let latest = lock(&self.latest).clone();
        Self {
            name: self.name.clone(),
            path: self.path.clone(),
            parameters: self.parameters,
            formula: self.formula.clone(),
            latest: Mutex::new(latest),
        }
    }
}

/// Returns the end of a path: `fc1` for `layers.0.fc1`, `layers.0` for `model.layers.0`, `model` for the empty path.
fn name_of(path: &str) -> String {
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let mut start = path.len();
    for part in path.rsplit('.') {
        start -= part.len();
        if !is_number(part) {
            break;
        }
        start = start.saturating_sub(1);
    }
    let name = path[start..].trim_matches('.');
    if name.is_empty() { "model".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_name_is_the_end_of_the_path() {
        let names = ["layers.0.fc1", "model.layers.0", "fc", "", "0", "a.1.2", "a..", "头.0"];
        let expected = ["fc1", "layers.0", "fc", "model", "0", "a.1.2", "a", "头.0"];
        assert_eq!(names.map(name_of), expected);
    }
}
