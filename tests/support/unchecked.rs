//! An exporter whose folder is not checked.

use kernspan::{
    Exporter,
    analysis::Analysis,
    export::{ExportResult, Run, StepExporter},
};

/// An exporter that is not checked when the profiler is built, as if its folder had become bad later.
pub struct Unchecked<E>(pub E);

impl<E: Exporter> Exporter for Unchecked<E> {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        self.0.export(window)
    }

    fn name(&self) -> &str {
        self.0.name()
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        self.0.steps(run)
    }
}
