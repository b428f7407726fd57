//! The report of a run as one HTML page.
//!
//! [`page`] builds a JSON document of sections, and [`document`] adds the styles and scripts in `assets`, which draw
//! them. A section has a kind, such as `table`, `flame` or `timeline`; `assets/main.js` lists them. Names are only ever
//! text in the page, never HTML.

mod answer;
mod cell;
mod document;
mod facts;
mod packed;
mod page;
mod parts;
mod paths;
mod ranks;
#[cfg(feature = "serving")]
mod requests;
mod roofline;
mod selection;
mod steps;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod window;

pub use self::{document::HtmlDocument, page::HtmlReport};

use super::exporter::{ExportResult, Exporter, Run, StepExporter, StepSummary};
use crate::{
    analysis::Analysis,
    file::{self, FileError},
};
use std::{
    error::Error,
    io::Write,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

/// An exporter of one page for the whole run: an HTML file that browsers open from disk, without a network.
///
/// ```no_run
/// # use kernspan::{Html, Profiler};
/// let (layer, profiler) = Profiler::builder().export(Html::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// The file is `{host}_{pid}.{time}.html`. It is written after each window and at the end of the run, so that a run
/// that is killed leaves a page, too. It contains:
///
/// - what a step takes, where its time goes, and what to change first, with the saving and its bounds: the
///   [findings](crate::Report::findings), with links to the spans and moments they are about;
/// - the duration of every step, recorded or not;
/// - the timeline of all recorded windows, item by item, to be searched and summed up;
/// - tables of spans, modules, kernels, operations, hardware counters and sampled lines, which can be sorted and
///   searched;
/// - GPUs and their memory over time, flame graphs of the host and of GPU time, and the roofline;
/// - vital signs, energy, requests and service levels of the run, as far as they are recorded;
/// - the run: host, GPU, versions, schedule, losses, and what recording cost.
///
/// For traces kept in memory or read from files, see [`HtmlReport`].
#[derive(Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Html {
    folder: PathBuf,
    page: Arc<Mutex<Page>>,
    /// Whether the run has no end that would report the file.
    one_window: bool,
}

/// The page of a run, and its file once written.
#[derive(Debug, Default)]
struct Page {
    report: HtmlReport,
    path: Option<PathBuf>,
}

/// The part of the exporter that takes every step, and writes the page when the run ends.
#[derive(Debug)]
struct Steps(Arc<Mutex<Page>>);

impl Html {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), page: Arc::default(), one_window: false }
    }

    /// Returns the exporter for one window, whose export reports the file.
    pub(crate) fn one_window(self) -> Self {
        Self { one_window: true, ..self }
    }
}

impl Exporter for Html {
    fn name(&self) -> &str {
        "Html"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        page.report.add(window);
        if page.path.is_none() {
            let path = file::write(&self.folder, window, ".html", |out| write!(out, "{}", page.report))?;
            page.path = Some(path);
        } else {
            page.write()?;
        }
        // Otherwise the end of the run reports the file, once for all windows.
        Ok(page.path.iter().filter(|_| self.one_window).cloned().collect())
    }

    fn steps(&mut self, run: &Run) -> Option<Box<dyn StepExporter>> {
        let mut page = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        page.report.set_run(run);
        Some(Box::new(Steps(Arc::clone(&self.page))))
    }
}

impl Page {
    /// Writes the page again.
    fn write(&self) -> Result<(), FileError> {
        let Some(path) = &self.path else { return Ok(()) };
        file::write_file(path, |out| write!(out, "{}", self.report))
    }
}

impl StepExporter for Steps {
    fn steps(&mut self, steps: &[StepSummary]) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        steps.iter().filter(|step| step.ended).for_each(|step| page.report.add_step(step));
        Ok(())
    }

    fn finish(&mut self) -> ExportResult {
        let mut page = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        page.report.end_run();
        page.write()?;
        Ok(page.path.iter().cloned().collect())
    }
}
