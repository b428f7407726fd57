use super::Value;
use std::{borrow::Cow, ops::Range};

/// Field names with a meaning, so that hand-written spans and integrations speak one language.
///
/// | field | on | meaning |
/// |---|---|---|
/// | `counter.NAME` | events | a sample of the counter `NAME`; any number |
/// | `counter.samples` | events | how many samples the step had, from which exporters compute the throughput |
/// | `op.name` | spans | what the span is called instead of the name in the source, which `tracing` wants to be a constant |
/// | `op.module` | spans | the path of the module in its model, as `layers.0.attention` |
/// | `op.shape.ARG` | spans, operations | the shape of the argument `ARG`, as `[64, 512]`: `op.shape.input = ?tensor.dims()`; of the result, if `ARG` is `output` |
/// | `op.dtype.ARG` | spans, operations | its element type, as `f32` |
/// | `op.compute` | spans, operations | the type that it is computed with, where the elements' does not say it, as `tf32` for products of `f32` |
/// | `op.device` | spans, operations | where it ran, as `cuda:0` |
/// | `op.parameters`, `op.parameter_bytes` | spans | how many parameters the module has, and how many bytes they take |
/// | `op.flops` | spans, operations | floating-point operations done |
/// | `op.bytes` | spans, operations | bytes moved |
/// | `op.input` | spans | that it is part of the input pipeline: `read`, `preprocess`, `enqueue`, or `load` for all of it; a span called `data` is a `load` without saying so |
/// | `op.gemm` | spans, operations | the size of the matrix product that it is, m×n×k, as `64x512x512` |
///
/// Operations are [`Operation`](crate::trace::Operation)s, of which frameworks tell.
///
/// ```
/// # let (batch, input, output) = (64_u64, 512_u64, 512_u64);
/// let span = tracing::trace_span!(
///     "linear",
///     op.shape.input = ?[batch, input],
///     op.dtype.input = "f32",
///     op.flops = 2 * batch * input * output,
/// );
/// tracing::info!(counter.loss = 0.25);
/// ```
pub mod convention {
    /// Prefix of a counter's samples.
    pub const COUNTER: &str = "counter.";
    /// The counter that says how many samples, images or tokens a step had. Exporters compute the throughput from it.
    ///
    /// ```
    /// use kernspan::{export::StepSummary, trace::convention};
    ///
    /// fn throughput(step: &StepSummary) -> Option<f64> {
    ///     Some(step.counter(convention::SAMPLES)? / step.duration.as_secs_f64())
    /// }
    ///
    /// tracing::info!(counter.samples = 64);
    /// ```
    pub const SAMPLES: &str = "samples";
    /// What a span is called.
    pub const NAME: &str = "op.name";
    /// The path of a module in its model.
    pub const MODULE: &str = "op.module";
    /// Prefix of the shapes of arguments.
    pub const SHAPE: &str = "op.shape.";
    /// Prefix of the element types of arguments.
    pub const DTYPE: &str = "op.dtype.";
    /// The type that an operation is computed with.
    pub const COMPUTE: &str = "op.compute";
    /// The argument that is the result.
    pub const OUTPUT: &str = "output";
    /// Floating-point operations.
    pub const FLOPS: &str = "op.flops";
    /// Bytes moved.
    pub const BYTES: &str = "op.bytes";
    /// The stage of the input pipeline that a span is.
    pub const INPUT: &str = "op.input";
    /// The size of a matrix product.
    pub const GEMM: &str = "op.gemm";
}

/// A value and the place of its name among the callsite's fields, or the operation's.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldData {
    pub(crate) index: u32,
    pub(crate) value: Value,
}

/// Which of the trace's fields belong to something.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldRange {
    pub(crate) start: u32,
    pub(crate) len: u32,
}

impl FieldRange {
    pub(crate) fn as_range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The recorded fields of a span, event or operation, in the order they were recorded.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    names: &'a [Cow<'static, str>],
    data: &'a [FieldData],
}

impl<'a> Fields<'a> {
    pub(super) fn new(names: &'a [Cow<'static, str>], data: &'a [FieldData]) -> Self {
        Self { names, data }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.data.is_empty()
    }

    /// Names and values.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        self.data.iter().filter_map(move |field| {
            let name = self.names.get(field.index as usize)?;
            Some((name.as_ref(), &field.value))
        })
    }

    /// The value of the field `name`.
    pub fn get(self, name: &str) -> Option<&'a Value> {
        self.iter().find_map(|(field, value)| (field == name).then_some(value))
    }

    /// Arguments and values of the fields whose names start with `prefix`.
    fn under(self, prefix: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str()?)))
    }

    /// What the fields say by [`convention`].
    pub fn op(self) -> OpFacts<'a> {
        OpFacts(self)
    }
}

/// What the fields of a span or operation say of what is done, by [`convention`].
#[derive(Clone, Copy, Debug)]
pub struct OpFacts<'a>(Fields<'a>);

impl<'a> OpFacts<'a> {
    /// Arguments and their shapes, as written: `("input", "[64, 512]")`.
    pub fn shapes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.under(convention::SHAPE).filter(|(argument, _)| *argument != convention::OUTPUT)
    }

    /// Arguments and their element types: `("input", "f32")`.
    pub fn dtypes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.under(convention::DTYPE).filter(|(argument, _)| *argument != convention::OUTPUT)
    }

    /// The shape of the result.
    pub fn output_shape(self) -> Option<&'a str> {
        self.0.under(convention::SHAPE).find_map(|(argument, shape)| (argument == convention::OUTPUT).then_some(shape))
    }

    /// The element type of the result.
    pub fn output_dtype(self) -> Option<&'a str> {
        self.0.under(convention::DTYPE).find_map(|(argument, dtype)| (argument == convention::OUTPUT).then_some(dtype))
    }

    /// The type that it is computed with, where that is said.
    pub fn compute(self) -> Option<&'a str> {
        self.0.get(convention::COMPUTE)?.as_str()
    }

    /// The path of the module in its model.
    pub fn module(self) -> Option<&'a str> {
        self.0.get(convention::MODULE)?.as_str()
    }

    /// Floating-point operations.
    pub fn flops(self) -> Option<u64> {
        self.0.get(convention::FLOPS)?.as_u64()
    }

    /// Bytes moved.
    pub fn bytes(self) -> Option<u64> {
        self.0.get(convention::BYTES)?.as_u64()
    }

    /// The size of the matrix product, m×n×k, as written: `64x512x512`.
    pub fn gemm(self) -> Option<&'a str> {
        self.0.get(convention::GEMM)?.as_str()
    }
}
