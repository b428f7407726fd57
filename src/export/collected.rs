use super::{ExportResult, Exporter};
use crate::trace::Trace;
use std::sync::{Arc, Mutex, PoisonError};

/// Keeps the traces in memory, for tests and for programs that look at them themselves.
///
/// A clone shares the traces of what it was cloned from. See [`Trace`] for an example.
#[derive(Clone, Debug, Default)]
pub struct Collected(Arc<Mutex<Vec<Arc<Trace>>>>);

impl Collected {
    /// A sink with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The traces so far, in order. All of them are there once [`finish`](crate::Profiler::finish) has returned.
    pub fn traces(&self) -> Vec<Arc<Trace>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The only trace.
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
    fn export(&mut self, trace: &Trace) -> ExportResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(trace.clone()));
        Ok(Vec::new())
    }
}
