//! Values of fields.

use std::{fmt, sync::Arc};

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
