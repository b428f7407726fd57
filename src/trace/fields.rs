//! Fields of spans, events and operations, and their values.

use super::convention;
use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

/// A value, and the index of its name in the field names of the callsite or operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FieldData {
    pub(crate) index: u32,
    pub(crate) value: Value,
}

/// The part of a trace's fields that belongs to a span or event.
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

    /// Whether no field was recorded.
    pub fn is_empty(self) -> bool {
        self.data.is_empty()
    }

    /// The names and values of the fields.
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

    /// The text fields whose names start with `prefix`: the rest of the name, and the value.
    fn under(self, prefix: &'static str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.iter().filter_map(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str()?)))
    }

    /// The facts that the fields state by [`convention`].
    pub fn op(self) -> OpFacts<'a> {
        OpFacts(self)
    }
}

/// The facts that the fields of a span or operation state about the work done, by [`convention`].
#[derive(Clone, Copy, Debug)]
pub struct OpFacts<'a>(Fields<'a>);

impl<'a> OpFacts<'a> {
    /// The arguments and their shapes, as written: `("input", "[64, 512]")`.
    pub fn shapes(self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.under(convention::SHAPE).filter(|(argument, _)| *argument != convention::OUTPUT)
    }

    /// The arguments and their element types: `("input", "f32")`.
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

    /// The type used for computing, if the fields state one.
    pub fn compute(self) -> Option<&'a str> {
        self.0.get(convention::COMPUTE)?.as_str()
    }

    /// The path of the module in its model.
    pub fn module(self) -> Option<&'a str> {
        self.0.get(convention::MODULE)?.as_str()
    }

    /// The number of floating-point operations.
    pub fn flops(self) -> Option<u64> {
        self.0.get(convention::FLOPS)?.as_u64()
    }

    /// The number of bytes moved.
    pub fn bytes(self) -> Option<u64> {
        self.0.get(convention::BYTES)?.as_u64()
    }

    /// The number of parameters of the module.
    pub fn parameters(self) -> Option<u64> {
        self.0.get(convention::PARAMETERS)?.as_u64()
    }

    /// The size of the module's parameters in bytes.
    pub fn parameter_bytes(self) -> Option<u64> {
        self.0.get(convention::PARAMETER_BYTES)?.as_u64()
    }

    /// The size of the matrix product, m×n×k, as written: `64x512x512`.
    pub fn gemm(self) -> Option<&'a str> {
        self.0.get(convention::GEMM)?.as_str()
    }
}

/// The value of a field of a span, event or operation, with the type it was recorded with.
///
/// Values that `tracing` provides as text (`%value`, `?value`, errors, 128-bit integers) are [`Str`](Value::Str),
/// truncated to [`Value::MAX_TEXT`] bytes and then ending in `…`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A floating-point number, possibly not finite.
    F64(f64),
    /// Text.
    Str(Arc<str>),
}

impl Value {
    /// The length, in bytes, at which text is truncated: the `Debug` output of a large tensor is not worth keeping.
    pub const MAX_TEXT: usize = 1024;

    /// The value as a floating-point number, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        match *self {
            Self::I64(value) => Some(value as f64),
            Self::U64(value) => Some(value as f64),
            Self::F64(value) => Some(value),
            Self::Bool(_) | Self::Str(_) => None,
        }
    }

    /// The value as an unsigned integer, if it is a number in range. The fraction of a floating-point number is
    /// discarded.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::I64(value) => value.try_into().ok(),
            Self::U64(value) => Some(value),
            // A FLOP count may well be computed in floating point.
            Self::F64(value) if value >= 0.0 && value < u64::MAX as f64 => Some(value as u64),
            _ => None,
        }
    }

    /// Whether this is text truncated to [`Self::MAX_TEXT`] bytes, which ends with an ellipsis.
    pub(crate) fn is_truncated(&self) -> bool {
        matches!(self, Self::Str(text) if text.len() >= Self::MAX_TEXT && text.ends_with('…'))
    }

    /// Returns the value, with text truncated to [`Self::MAX_TEXT`] bytes.
    pub(crate) fn cut(self) -> Self {
        match self {
            Self::Str(text) if text.len() > Self::MAX_TEXT => {
                let end = (0..=Self::MAX_TEXT).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
                Self::Str(format!("{}…", &text[..end]).into())
            }
            value => value,
        }
    }

    /// The value as text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Str(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Str(text.into())
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Str(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i32> for Value {
    fn from(value: i32) -> Self {
        Self::I64(value.into())
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::I64(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::U64(value.into())
    }
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::U64(value)
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Self {
        Self::U64(value as u64)
    }
}

impl From<f32> for Value {
    fn from(value: f32) -> Self {
        Self::F64(value.into())
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::F64(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::I64(value) => value.fmt(f),
            Self::U64(value) => value.fmt(f),
            Self::F64(value) => value.fmt(f),
            Self::Str(value) => value.fmt(f),
        }
    }
}
