use std::{fmt, sync::Arc};

/// The value of a field of a span or event, with the type it was recorded with.
///
/// Values that `tracing` hands over as text (`%value`, `?value`, errors, 128-bit integers) are [`Str`](Value::Str), cut
/// after [`Value::MAX_TEXT`] bytes and then ending in `…`.
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
    /// The longest text kept, in bytes: what a `Debug` of a large tensor prints is not worth its time.
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

    /// The value as an unsigned integer, if it is one that is not negative.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::I64(value) => value.try_into().ok(),
            Self::U64(value) => Some(value),
            // A FLOP count may well be computed in floating point.
            Self::F64(value) if value >= 0.0 && value < u64::MAX as f64 => Some(value as u64),
            _ => None,
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
