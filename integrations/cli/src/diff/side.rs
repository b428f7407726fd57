//! One side of a comparison.

use crate::{fault::Fault, input::Inputs, progress::Progress, runs::Runs};
use kernspan_check::{Baseline, CountKind, comparison::KernelTimes};
use std::{path::PathBuf, thread};

/// One side of a comparison: statistics of its runs.
pub(super) struct Side {
    /// The files and folders, as they were given.
    pub(super) name: String,
    pub(super) baseline: Baseline,
    pub(super) kernels: KernelTimes,
    /// Whether all files could be read.
    pub(super) is_complete: bool,
}

/// Reads both sides at the same time.
pub(super) fn read_both(sides: [Vec<PathBuf>; 2], recursive: bool) -> Result<[Side; 2], Fault> {
    let [before, after] = sides.map(|files| Inputs::of(files, recursive));
    let progress = Progress::new();
    let (before, after) = thread::scope(|scope| {
        let first = scope.spawn(|| Side::read(&before, &progress));
        let after = Side::read(&after, &progress);
        (first.join(), after)
    });
    let panicked = |_| Fault::Failed("cannot read the runs before".to_owned());
    Ok([before.map_err(panicked)??, after?])
}

impl Side {
    fn read(inputs: &Inputs, progress: &Progress) -> Result<Self, Fault> {
        let runs = Runs::read_with(inputs, None, progress)?;
        let (kernels, is_complete) = (KernelTimes::of(runs.traces()), runs.end().is_ok());
        Ok(Self { name: inputs.names(), kernels, is_complete, baseline: runs.baseline })
    }

    /// Returns the mean of a count over the steps of all runs.
    pub(super) fn count(&self, kind: CountKind) -> f64 {
        let ranges = || self.baseline.runs.iter().map(|run| run.count(kind));
        let steps: f64 = ranges().map(|range| range.steps as f64).sum();
        let sum: f64 = ranges().map(|range| range.sum as f64).sum();
        if steps > 0.0 { sum / steps } else { 0.0 }
    }
}
