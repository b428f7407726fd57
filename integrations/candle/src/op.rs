use crate::{
    Parameters,
    cost::{Cost, Formula},
    graph::{self, Spent},
    signature::{Arguments, Signature},
};
use candle_core::{Result, Tensor};
use candle_nn::VarBuilder;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::{Span, field};

/// A place in a model that is a span whenever it runs: what [`Traced`](crate::Traced) is around a module, for what is not a
/// [`Module`](candle_nn::Module).
///
/// The span has the name, the path, the shapes, element types and device of what goes in and comes out, and what is known of
/// FLOPs, bytes and parameters, by the field names of `kernspan::trace::convention`. It is made when shapes are first seen, and entered
/// again for as long as they stay the same, so that a module that is not recorded costs some hundred nanoseconds (`benches/README.md`).
///
/// So it is one of those spans that live as long as the model, as candle-transformers' do: other layers of the subscriber see a span `op`
/// without a parent, one that exports spans when they close never sees it closed, and a model that has run under one subscriber goes on
/// telling that one. Where there was none yet, the next one is told.
///
/// | field | what it says |
/// |---|---|
/// | `op.name`, `op.module` | the name, and the path in the model |
/// | `op.device` | where the first input is, as `cuda:0` |
/// | `op.shape.input`, `op.dtype.input`, then `input1` to `input3` | what went in |
/// | `op.shape.output`, `op.dtype.output` | what came out |
/// | `op.flops`, `op.bytes` | what it took, as far as is known; bytes are those of inputs, parameters and output, each once |
/// | `op.gemm` | of a linear layer, m, n and k of the product |
/// | `op.compute` | `tf32`, where Candle makes products of `f32` with it |
/// | `op.parameters`, `op.parameter_bytes` | what it has |
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

/// What the op was last called with, and what became of it.
#[derive(Debug)]
struct Run {
    inputs: Arguments,
    span: Span,
    /// What came out last time.
    outcome: Mutex<Option<Arc<Outcome>>>,
}

#[derive(Debug)]
struct Outcome {
    output: Signature,
    spent: Option<Spent>,
}

impl Op {
    /// An op at this path of the model, as `layers.0.attention`. Its span is called by the end of the path, `attention`; if that is
    /// a number, by more of it.
    pub fn new(path: impl Into<String>) -> Self {
        let path = path.into();
        Self { name: name_of(&path), path, parameters: None, formula: None, latest: Mutex::default() }
    }

    /// An op at the path of a builder.
    pub fn at(vb: &VarBuilder<'_>) -> Self {
        Self::new(vb.prefix())
    }

    /// What its spans are called. By default, the end of the path: with `named("block")`, all blocks of a model are one row of the
    /// table, and still a row each when it is grouped by module.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many floating-point operations it takes, given what goes in and what comes out: one of [`flops`](crate::flops), or
    /// your own. It is asked once for as long as shapes stay the same. By default, nothing is said of it.
    #[must_use]
    pub fn flops(self, flops: impl Fn(&[&Tensor], &Tensor) -> u64 + Send + Sync + 'static) -> Self {
        let known = self.formula.clone();
        self.formula(Formula::new(move |inputs, output| {
            let known = known.as_ref().map(|known| known.apply(inputs, output)).unwrap_or_default();
            Cost { flops: flops(inputs, output), products: true, ..known }
        }))
    }

    /// How many parameters it has. By default, nothing is said of it.
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

    /// The name of its spans.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path in the model.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Runs `forward`, which makes one tensor of `inputs`, in a span. The shapes of up to four inputs are recorded.
    pub fn run(&self, inputs: &[&Tensor], forward: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
        let Some(run) = self.run_of(inputs) else { return forward() };
        let known = run.outcome();
        let nested = graph::mark();
        // What came out is said while the span is open: on another thread the same one may be, too.
        let _entered = run.span.enter();
        let output = forward()?;
        let spent = match known {
            Some(known) if known.output.is(&output) => known.spent,
            _ => self.settle(&run, inputs, &output),
        };
        graph::remember(nested, &output, spent);
        Ok(output)
    }

    /// The latest run, if it was of such inputs, or else a new one; none while nobody listens.
    fn run_of(&self, inputs: &[&Tensor]) -> Option<Arc<Run>> {
        let mut latest = lock(&self.latest);
        if let Some(run) = &*latest
            && run.inputs.are(inputs)
        {
            return Some(Arc::clone(run));
        }
        let span = self.span(inputs);
        // Not remembered if there is nobody yet: there may be somebody next time.
        let run = (!span.is_disabled()).then(|| Run { inputs: Arguments::of(inputs), span, outcome: Mutex::default() });
        *latest = run.map(Arc::new);
        latest.clone()
    }

    /// A span with what is known before it runs.
    ///
    /// It has no parent: it is kept, and would keep alive whatever it was first made in, which may be a step that somebody waits
    /// to be closed. What it is nested in each time, the profiler knows from what is open then.
    fn span(&self, inputs: &[&Tensor]) -> Span {
        let shape = |place: usize| inputs.get(place).map(|input| field::debug(input.dims()));
        let dtype = |place: usize| inputs.get(place).map(|input| input.dtype().as_str());
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

    /// Says in the span what came out and what it took.
    fn settle(&self, run: &Run, inputs: &[&Tensor], output: &Tensor) -> Option<Spent> {
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
        let spent = cost.map(|cost| {
            let compute = if cost.products { run.inputs.compute() } else { None };
            if let Some(compute) = compute {
                run.span.record("op.compute", compute);
            }
            Spent { flops: cost.flops, compute: compute.unwrap_or(output.dtype().as_str()) }
        });
        *lock(&run.outcome) = Some(Arc::new(Outcome { output: Signature::of(output), spent }));
        spent
    }
}

impl Run {
    fn outcome(&self) -> Option<Arc<Outcome>> {
        lock(&self.outcome).clone()
    }
}

/// Nothing is left half done where it is held, so a panic elsewhere does no harm.
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

/// The end of a path: `fc1` of `layers.0.fc1`, `layers.0` of `model.layers.0`, `model` of nothing.
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
