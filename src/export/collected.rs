//! An exporter that keeps traces in memory.

use super::exporter::{ExportResult, Exporter};
use crate::{analysis::Analysis, trace::Trace};
use std::sync::{Arc, Mutex, PoisonError};

/// An exporter that keeps traces in memory, for tests and for programs that inspect them.
///
/// Clones share their traces. See [`Trace`] for an example.
#[derive(Clone, Debug, Default)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Collected(Arc<Mutex<Vec<Arc<Trace>>>>);

impl Collected {
    /// Returns an exporter without traces.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the traces so far, in order. They are complete once [`finish`](crate::Profiler::finish) has returned.
    pub fn traces(&self) -> Vec<Arc<Trace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the only trace.
    ///
    /// # Panics
    ///
    /// If there is none or more than one.
    pub fn only(&self) -> Arc<Trace> {
        let mut traces = self.traces();
        assert_eq!(traces.len(), 1, "not exactly one window was recorded");
        traces.remove(0)
    }
}

impl Exporter for Collected {
    fn name(&self) -> &str {
        "Collected"
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(window.trace().clone()));
        Ok(Vec::new())
    }
}
