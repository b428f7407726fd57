//! The trait of exporters.

use super::{
    result::ExportResult,
    step_exporter::{Run, StepExporter},
};
use crate::analysis::Analysis;
use std::error::Error;

/// A destination for traces: it receives each recorded window, as the [`Analysis`] of its [`Trace`](crate::Trace).
///
/// Exporters run on a background thread, one after another, never two at once. One that fails or panics is reported by
/// [`finish`](crate::Profiler::finish); the others continue. Spans created by an exporter are not recorded.
///
/// Only [`export`](Self::export) is required:
///
/// ```
/// use kernspan::{Exporter, Profiler, analysis::Analysis, export::ExportResult};
/// use std::{collections::BTreeMap, path::PathBuf};
///
/// /// Writes how often each span was entered, into a file in this folder.
/// struct Counts(PathBuf);
///
/// impl Exporter for Counts {
///     fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
///         let mut counts = BTreeMap::new();
///         window.spans().for_each(|span| *counts.entry(span.name()).or_insert(0) += 1);
///         let file = self.0.join(format!("counts-{}.txt", window.window()));
///         std::fs::write(&file, format!("{counts:#?}"))?;
///         Ok(vec![file]) // The report lists it.
///     }
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let runs = folder.path();
/// let (layer, profiler) = Profiler::builder().export(Counts(runs.into())).build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
pub trait Exporter: Send + 'static {
    /// Exports one window, and returns the files it wrote.
    ///
    /// # Errors
    ///
    /// Anything to be reported as a [`Failure`](crate::Failure).
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult;

    /// Checks that traces can be exported. [`build`](crate::ProfilerBuilder::build) calls it once, so that mistakes are
    /// found before the training begins. By default, it does nothing.
    ///
    /// Exporters that write into a folder create it if it does not exist, and write and remove a small file. The folder
    /// stays.
    ///
    /// # Errors
    ///
    /// The reason nothing can be exported, which [`build`](crate::ProfilerBuilder::build) returns in
    /// [`Error::Exporters`](crate::Error::Exporters). A panic counts as an error.
    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }

    /// Returns the exporter's name, as used in a [`Failure`](crate::Failure). By default, the name of its type, without
    /// its path and its generic parameters.
    fn name(&self) -> &str {
        type_name::<Self>()
    }

    /// Returns a [`StepExporter`] for the summaries of every step, recorded or not. It is called once, when the
    /// profiler is built. By default, there is none; if no exporter has one, the summaries cost nothing.
    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        let _ = run;
        None
    }
}

/// The last segment of a type's path: `Chrome` for `kernspan::export::chrome::Chrome`.
fn type_name<T: ?Sized>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or(name)
}

/// The exporter behind [`on_trace`](crate::ProfilerBuilder::on_trace).
pub(crate) struct OnTrace<F>(pub(crate) F);

impl<F: FnMut(&Analysis<'_>) + Send + 'static> Exporter for OnTrace<F> {
    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        (self.0)(window);
        Ok(Vec::new())
    }

    fn name(&self) -> &str {
        "on_trace"
    }
}

#[cfg(test)]
mod tests {
    use super::{Exporter, OnTrace};
    use crate::{
        analysis::Analysis,
        export::{Chrome, Collected, ExportResult, Html, Perfetto, Stacks, TensorBoard},
    };

    struct Plain;

    struct Generic<T>(T);

    impl Exporter for Plain {
        fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
            Ok(Vec::new())
        }
    }

    impl<T: Send + 'static> Exporter for Generic<T> {
        fn export(&mut self, _: &Analysis<'_>) -> ExportResult {
            Ok(Vec::new())
        }
    }

    #[test]
    fn exporters_are_named_after_their_types() {
        let exporters: [(Box<dyn Exporter>, &str); 9] = [
            (Box::new(Plain), "Plain"),
            (Box::new(Generic(Generic(Plain))), "Generic"),
            (Box::new(OnTrace(|_: &Analysis<'_>| ())), "on_trace"),
            (Box::new(Chrome::to_dir("")), "Chrome"),
            (Box::new(Perfetto::to_dir("")), "Perfetto"),
            (Box::new(TensorBoard::to_dir("")), "TensorBoard"),
            (Box::new(Stacks::to_dir("")), "Stacks"),
            (Box::new(Html::to_dir("")), "Html"),
            (Box::new(Collected::new()), "Collected"),
        ];
        for (exporter, name) in exporters {
            assert_eq!(exporter.name(), name);
        }
    }
}
