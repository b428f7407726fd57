//! An exporter that builds the baseline of the running program.

use crate::baseline::{Baseline, BaselineBuilder};
use kernspan::{Exporter, analysis::Analysis, export::ExportResult};
use std::sync::{Arc, Mutex, PoisonError};

/// An exporter that builds the [`Baseline`] of the running program, window by window, without keeping traces.
///
/// Clones share their baseline: give one to the profiler, and query the other once
/// [`finish`](kernspan::Profiler::finish) has returned. See the [crate](crate) for an example.
#[derive(Clone, Debug, Default)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Recorder(Arc<Mutex<BaselineBuilder>>);

impl Recorder {
    /// Returns a recorder without windows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the baseline of the windows so far.
    pub fn baseline(&self) -> Baseline {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).baseline()
    }
}

impl Exporter for Recorder {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(window);
        Ok(Vec::new())
    }
}
