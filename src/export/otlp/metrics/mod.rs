//! The run's vital signs as metrics: of every step, whether it is recorded or not, and of recorded windows what GPUs did.

use super::{run_trace::RunTrace, settings::Settings, tally::Tally};
use crate::{
    export::StepSigns,
    trace::{Timestamp, Trace},
};

/// What has been counted and measured.
#[derive(Debug)]
pub(super) struct Metrics {}

impl Metrics {
    pub(super) fn new(_start: Timestamp, _run: RunTrace, _samples_per_step: Option<u64>, _settings: &Settings) -> Self {
        Self {}
    }

    /// A step has ended.
    pub(super) fn add_step(&mut self, _step: &StepSigns) {}

    /// A window has been recorded.
    pub(super) fn add_window(&mut self, _trace: &Trace) {}

    /// If it is time, or the run is over: all metrics, as they go into a `ScopeMetrics` message, and how many points they have.
    pub(super) fn collect(&mut self, _last: bool, _tallies: &[(&str, Option<&Tally>)]) -> Option<(Vec<u8>, u64)> {
        None
    }
}
