//! Where traces go. An exporter sees only the [`Trace`].

mod batch_text;
mod chrome;
mod collected;
#[cfg(test)]
#[path = "../../tests/support/downloads.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod downloads;
mod flows;
mod nest;
mod perfetto;
mod ranges;
#[cfg(test)]
#[path = "../../tests/support/readers.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod readers;
mod run_id;
mod runs;
#[cfg(test)]
mod samples;
mod shape;
mod stacks;
mod step_exporter;
mod tensorboard;
mod wire;

pub use self::{
    chrome::{Chrome, Flavor},
    collected::Collected,
    perfetto::Perfetto,
    run_id::RunId,
    stacks::Stacks,
    step_exporter::{Run, StepExporter, StepSummary},
    tensorboard::TensorBoard,
};
pub use crate::{delivery::Delivery, file::FileError, thread::mute_this_thread};

use crate::trace::Trace;
use std::path::PathBuf;

/// What an exporter gives back: the files it wrote, or why it could not.
pub type ExportResult = Result<Vec<PathBuf>, Box<dyn std::error::Error + Send + Sync>>;

/// Takes each window's trace somewhere.
///
/// Exporters run on a background thread, one after the other, never two at once. One that fails or panics is reported by
/// [`finish`](crate::Profiler::finish); the others go on. Spans that an exporter makes are not recorded.
///
/// ```
/// use kernspan::{Exporter, Profiler, Trace, export::ExportResult};
///
/// struct SlowestSpan;
///
/// impl Exporter for SlowestSpan {
///     fn export(&mut self, trace: &Trace) -> ExportResult {
///         if let Some(span) = trace.spans().max_by_key(|span| span.self_time()) {
///             eprintln!("window {}: {} took {:?}", trace.window(), span.name(), span.self_time());
///         }
///         Ok(vec![])
///     }
/// }
///
/// let (layer, profiler) = Profiler::builder().export(SlowestSpan).build()?;
/// # drop(layer);
/// # profiler.finish()?;
/// # Ok::<(), kernspan::Error>(())
/// ```
pub trait Exporter: Send + 'static {
    /// Exports one window and says which files it wrote.
    fn export(&mut self, trace: &Trace) -> ExportResult;

    /// What takes the vital signs of every step, also of those that are not recorded. Asked once, when the profiler is made. By default,
    /// nothing does; and if no exporter wants them, they cost nothing.
    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        let _ = run;
        None
    }
}

/// The exporter behind [`on_trace`](crate::ProfilerBuilder::on_trace).
pub(crate) struct OnTrace<F>(pub(crate) F);

impl<F: FnMut(&Trace) + Send + 'static> Exporter for OnTrace<F> {
    fn export(&mut self, trace: &Trace) -> ExportResult {
        (self.0)(trace);
        Ok(Vec::new())
    }
}
