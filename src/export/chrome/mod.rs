//! Kineto's dialect of Chrome's trace format, which `torch.profiler` writes.
//!
//! The modules that write the parts of a document, from [`header`] to [`work`], share an [`Output`] and describe each
//! event to an [`EventWriter`]; only that and [`json`](super::json) know the punctuation of JSON.

mod calls;
mod counters;
mod event;
mod fields;
mod flavor;
mod gpu;
mod header;
mod host;
mod output;
mod rows;
mod samples;
mod spans;
#[cfg(test)]
mod tests;
mod torch;
mod work;

#[cfg(feature = "read")]
pub(crate) use self::fields::RESERVED;
pub use self::flavor::Flavor;

use self::{
    event::EventWriter,
    flavor::{Options, Times},
    output::Output,
    rows::host_pid,
};
use super::{
    exporter::{ExportResult, Exporter},
    steps::steps_nest,
};
use crate::{analysis::Analysis, file, trace::Trace};
use std::{
    error::Error,
    io::{self, Write},
    path::PathBuf,
};

/// An exporter of traces in the format that `torch.profiler` writes, for [Perfetto](https://ui.perfetto.dev) and
/// HolisticTraceAnalysis.
///
/// ```no_run
/// # use kernspan::{Chrome, Profiler};
/// let (layer, profiler) = Profiler::builder().export(Chrome::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// Each window is a file, `{host}_{pid}.{time}.pt.trace.json`.
///
/// # The host
///
/// Spans are `cpu_op`, steps are `ProfilerStep#N`, events are instants and counters are counters. Shapes and element
/// types that follow the [`convention`](crate::trace::convention) are also `Input Dims` and `Input type`. A span cut by
/// the window's edge has `"started": false` or `"finished": false`. An arrow of the category `call` leads from each
/// enter of a call to the next: see [`Span::previous`](crate::trace::Span::previous).
///
/// [Operations](crate::trace::Operation) are instants of the category `operation` on the row of the thread that
/// reported them, with their fields and the name of their span.
///
/// Sampled stacks are the members `stackFrames` and `samples` of the document; `kernspan_sampling` has their lines.
///
/// # GPUs
///
/// Each GPU is a process, named by its number, with a row for each stream. On it are `kernel`, `gpu_memcpy` and
/// `gpu_memset`, each with an arrow from the call that caused it (`cuda_driver`, `cuda_runtime`) and the `External id`
/// of its span. Around them, `gpu_user_annotation` shows the step and the span they belong to. Waits are `cuda_sync`,
/// on separate rows, and allocations are `[memory]` instants.
///
/// A kernel's `raw name`, if it differs from the name, is given once for all kernels launched alike. A kernel launched
/// for operations has their names as `ops`, and if several spans requested them, the names of these as `spans`: the
/// first sixteen of each.
///
/// TensorBoard's plugin for PyTorch reads another [flavor](Flavor).
#[derive(Clone, Debug)]
#[must_use = "an exporter does nothing until it is given to `ProfilerBuilder::export`"]
pub struct Chrome {
    folder: PathBuf,
    gzip: bool,
    options: Options,
}

impl Chrome {
    /// Creates an exporter that writes into this folder. The folder is created if it does not exist.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), gzip: false, options: Options::default() }
    }

    /// Sets the readers that the files are for. By default, [`Flavor::Kineto`].
    ///
    /// Files of [`Flavor::TorchTensorBoard`] go into a separate folder inside this one, `torch_tb_profiler`, so that no
    /// reader encounters both.
    ///
    /// ```
    /// use kernspan::{Chrome, export::Flavor};
    ///
    /// let for_tensorboard = Chrome::to_dir("runs/mnist").flavor(Flavor::TorchTensorBoard);
    /// ```
    pub fn flavor(mut self, flavor: Flavor) -> Self {
        self.options.flavor = flavor;
        self
    }

    /// Sets whether calls to CUDA's driver API get the names and the category of the equivalent runtime functions. By
    /// default, no.
    ///
    /// `cuLaunchKernel` is then `cudaLaunchKernel`, with the argument `driver name`. Candle, Burn and cudarc call the
    /// driver, as most Rust code does, while HolisticTraceAnalysis' launch statistics know only the runtime API.
    ///
    /// ```
    /// use kernspan::Chrome;
    ///
    /// let for_hta = Chrome::to_dir("runs/mnist").runtime_names(true);
    /// ```
    pub fn runtime_names(mut self, runtime_names: bool) -> Self {
        self.options.runtime_names = runtime_names;
        self
    }

    /// Sets whether files are compressed, as `.json.gz`, which all readers open, too. By default, no.
    #[cfg(feature = "gzip")]
    pub fn gzip(mut self, gzip: bool) -> Self {
        self.gzip = gzip;
        self
    }

    /// Writes a trace to a writer instead of a file, compressed if files are. The folder is not used.
    ///
    /// ```
    /// use kernspan::{Chrome, Trace};
    ///
    /// fn json(trace: &Trace) -> std::io::Result<Vec<u8>> {
    ///     let mut json = Vec::new();
    ///     Chrome::to_dir("unused").write(trace, &mut json)?;
    ///     Ok(json)
    /// }
    /// ```
    pub fn write(&self, trace: &Trace, out: &mut impl Write) -> io::Result<()> {
        self.write_window(&Analysis::of(trace), out)
    }

    fn write_window(&self, window: &Analysis<'_>, out: &mut impl Write) -> io::Result<()> {
        match self.gzip {
            #[cfg(feature = "gzip")]
            true => {
                // Level 1 is three times as fast as the default, with output a tenth larger.
                let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
                write_document(window, self.options, &mut out)?;
                out.finish().map(drop)
            }
            _ => write_document(window, self.options, out),
        }
    }

    fn folder(&self) -> PathBuf {
        match self.options.flavor {
            Flavor::Kineto => self.folder.clone(),
            Flavor::TorchTensorBoard => self.folder.join("torch_tb_profiler"),
        }
    }
}

impl Exporter for Chrome {
    fn name(&self) -> &str {
        "Chrome"
    }

    fn check(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(file::check(&self.folder())?)
    }

    fn export(&mut self, window: &Analysis<'_>) -> ExportResult {
        let ending = if self.gzip { ".pt.trace.json.gz" } else { ".pt.trace.json" };
        Ok(vec![file::write(&self.folder(), window, ending, |out| self.write_window(window, out))?])
    }
}

/// Writes the document of a trace.
///
/// Three things make readers fail: an array after `traceEvents`, `"rank":0` without a space, and ranges that cross on a
/// row.
fn write_document(window: &Analysis<'_>, options: Options, out: &mut dyn Write) -> io::Result<()> {
    let trace = window.trace();
    let times = Times::new(trace, options.flavor);
    let events = EventWriter::new(out, times, &header::members(window, options, times));
    let mut out = Output { trace, options, pid: host_pid(trace), events };
    out.write_torch_names()?;
    if out.torch().is_some() {
        // PyTorch's steps are also spans.
        host::write_names(&mut out, true)?;
    } else {
        let nested_steps = steps_nest(trace);
        host::write_names(&mut out, nested_steps)?;
        host::write_steps(&mut out, nested_steps)?;
    }
    spans::write(&mut out)?;
    host::write_events(&mut out)?;
    host::write_operations(&mut out)?;
    host::write_counters(&mut out)?;
    host::write_losses(&mut out)?;
    gpu::write(&mut out)?;
    out.write_torch_marks()?;
    // TensorBoard's plugin cuts the text at its last `]`.
    let name = format!("{}#{}", trace.metadata().process.replace(']', ")"), trace.window());
    out.events.finish(&name)
}
