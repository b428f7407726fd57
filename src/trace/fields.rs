//! Fields of spans, events and operations.

use super::{Value, convention};
use std::{borrow::Cow, ops::Range};

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

    /// The size of the matrix product, m×n×k, as written: `64x512x512`.
    pub fn gemm(self) -> Option<&'a str> {
        self.0.get(convention::GEMM)?.as_str()
    }
}
