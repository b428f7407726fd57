//! Places in the source where spans and events are written.

use super::{id::define_id, input::LoadsData};
use std::{borrow::Cow, fmt};

define_id! {
    /// Names a callsite of one trace.
    pub(crate) struct CallsiteId;

    /// The index of the callsite in [`Trace::callsites`](crate::Trace::callsites).
    pub(crate) fn index;
}

/// The place in the source where a span or event is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callsite {
    pub(crate) name: Cow<'static, str>,
    pub(crate) target: Cow<'static, str>,
    pub(crate) level: Level,
    pub(crate) file: Option<Cow<'static, str>>,
    pub(crate) line: Option<u32>,
    pub(crate) fields: Vec<Cow<'static, str>>,
    pub(crate) loads: LoadsData,
}

impl Callsite {
    /// The name of the span. An event has the name that `tracing` gives it, such as `event src/main.rs:7`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The target, which is the module path by default.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Its verbosity level.
    pub fn level(&self) -> Level {
        self.level
    }

    /// The source file, if known.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The line in the source file, if known.
    pub fn line(&self) -> Option<u32> {
        self.line
    }

    /// The names of all fields that can be recorded here.
    pub fn field_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.fields.iter().map(AsRef::as_ref)
    }

    /// The source file and line as `file:line`, if known.
    pub fn location(&self) -> Option<String> {
        Some(format!("{}:{}", self.file.as_deref()?, self.line?))
    }
}

/// The verbosity of a span or event, as in `tracing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "UPPERCASE"))]
pub enum Level {
    /// The most verbose.
    Trace,
    /// Verbose.
    Debug,
    /// Neither verbose nor a warning.
    Info,
    /// A warning.
    Warn,
    /// An error.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Trace => "TRACE",
            Self::Debug => "DEBUG",
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        })
    }
}
