//! Perfetto's own format: a sequence of protobuf messages, with every name written once.
//!
//! [`document`] writes the file of a trace. [`threads`] and [`gpus`] write its tracks: a
//! [`TrackWriter`](tracks::TrackWriter) describes each track, and a [`Sequence`](sequence::Sequence) contains the
//! track's [`Event`](event::Event)s. [`compute`] writes the kernels again, for Perfetto's own table of them.

mod compute;
mod compute_proto;
mod document;
mod event;
mod gpus;
mod interner;
mod proto;
mod samples;
mod sequence;
#[cfg(test)]
mod tests;
mod threads;
mod tracks;

use super::exporter::{ExportResult, Exporter};
use crate::file;
use crate::{analysis::Analysis, trace::Trace};
use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

/// An exporter of traces in [Perfetto](https://ui.perfetto.dev)'s protobuf format: a fifth of the size of JSON, and
/// faster to open.
///
/// ```no_run
/// # use kernspan::{Perfetto, Profiler};
/// let (layer, profiler) = Profiler::builder().export(Perfetto::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// Each window is a file, `{host}_{pid}.{time}.pftrace`. Each GPU is a group of tracks: the memory in use, the waits,
/// and for each stream its work, below the steps and spans that caused it. An arrow leads from each call, inside its
/// span, to its work, and from each enter of a call to the next: see
/// [`Span::previous`](crate::trace::Span::previous).
///
/// A call that was entered several times, such as that of a future, is also one slice of the category `call`, from its
/// first enter to its last exit. These slices are in the group `calls`, which has a track for each name.
///
/// Slices have the same categories as in [`Chrome`](crate::Chrome), such as `cpu_op`, `kernel` and `gpu_memcpy`, so one
/// SQL query serves both formats.
///
/// Kernels are written a second time as Perfetto's own GPU events, for its tab *GPU Compute*: a table of all launches,
/// and for each its grid, block, registers, shared memory and waves. The tab is in Perfetto 55 and later, as a plugin
/// that is off by default: `https://ui.perfetto.dev/#!/?enablePlugins=com.meta.GpuCompute`. In SQL the kernels are in
/// `gpu_slice`, and not among the slices of a category.
///
/// Stacks sampled on the CPU are callstacks on the tracks of their threads. Selecting a range shows a flame graph.
/// Waits are left out.
///
/// [Operations](crate::trace::Operation) are instants of the category `operation` on the track of the thread that
/// reported them. Kernels launched for operations have their names as `ops`, and if several spans requested them, the
/// names of these as `spans`.
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Perfetto {
    folder: PathBuf,
}

impl Perfetto {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Writes a trace to a writer instead of a file.
    pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        document::write(trace, out)
    }
}

impl Exporter for Perfetto {
    fn name(&self) -> &str {
        "Perfetto"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder)?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        Ok(vec![file::write(&self.folder, window, ".pftrace", |out| document::write(window, out))?])
    }
}
