//! Time taken by the GPU's profiling library itself.

use super::{ThreadId, Timestamp};
use std::{borrow::Cow, time::Duration};

/// A period taken by the GPU's profiling library itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overhead {
    pub(crate) name: Cow<'static, str>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Overhead {
    /// The library's name for it: `Buffer Flush`, `Instrumentation`, ….
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The thread that was delayed, if it was a single one.
    pub fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    /// When it began.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When it ended.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// The time from start to end.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}
