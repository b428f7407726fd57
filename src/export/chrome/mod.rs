//! Kineto's flavor of Chrome's trace format: what `torch.profiler` writes and Perfetto, HTA and others read.

#[cfg(test)]
mod consumers;
mod flavor;
mod gpu;
mod header;
mod json;
mod kineto;
mod micros;
mod operations;
mod rows;
mod runtime_names;
#[cfg(test)]
mod tests;
mod torch;

pub use self::flavor::Flavor;

use super::{ExportResult, Exporter};
use crate::file;
use crate::trace::Trace;
use std::path::PathBuf;

/// Writes traces as `torch.profiler` does, for [Perfetto](https://ui.perfetto.dev) and HolisticTraceAnalysis.
///
/// ```no_run
/// # use kernspan::{Chrome, Profiler};
/// let (layer, profiler) = Profiler::builder().export(Chrome::to_dir("runs/mnist")).build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
///
/// One file a window, `{host}_{pid}.{time}.pt.trace.json`. Spans are `cpu_op`, steps are `ProfilerStep#N`, events are instants
/// and counters are counters; shapes and element types by [`convention`](crate::trace::convention) are also `Input Dims` and `Input
/// type`. A span that was cut by the window's edge says `"started": false` or `"finished": false`.
///
/// GPUs are processes of their own, named by their numbers, with a row for each stream: `kernel`, `gpu_memcpy` and `gpu_memset`,
/// each with an arrow from the call that caused it (`cuda_driver`, `cuda_runtime`) and the `External id` of its span. The first of
/// the kernels that are launched alike also has the `raw name`, if that is another. Around them, `gpu_user_annotation` says which step and span they are of. Waits are `cuda_sync`, on rows of their own, and allocations
/// are `[memory]` instants.
///
/// [Operations](crate::trace::Operation) are instants of the category `operation` on the row of the thread that told of them, with their fields and
/// the name of their span. A kernel that was launched for operations has their names as `ops`, and where several spans asked for them, those
/// as `spans`; of many, the first sixteen.
///
/// TensorBoard's plugin for PyTorch reads another [flavor](Flavor).
#[derive(Clone, Debug)]
pub struct Chrome {
    folder: PathBuf,
    gzip: bool,
    style: Style,
}

/// What there is to choose of the document.
#[derive(Clone, Copy, Debug, Default)]
struct Style {
    flavor: Flavor,
    runtime_names: bool,
}

impl Chrome {
    /// Writes into this folder, which is made if it is not there.
    pub fn to_dir(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), gzip: false, style: Style::default() }
    }

    /// Which readers it is for. By default, [`Flavor::Kineto`]. Files of [`Flavor::TorchTensorBoard`] are in a folder of their own,
    /// `torch_tb_profiler`, in this one, so that no reader meets both.
    ///
    /// ```
    /// use kernspan::{Chrome, export::Flavor};
    ///
    /// let for_tensorboard = Chrome::to_dir("runs/mnist").flavor(Flavor::TorchTensorBoard);
    /// ```
    #[must_use]
    pub fn flavor(mut self, flavor: Flavor) -> Self {
        self.style.flavor = flavor;
        self
    }

    /// Whether calls of CUDA's driver API have the names and the category of the runtime API's that do the same: `cuLaunchKernel` is
    /// `cudaLaunchKernel`, and has the argument `driver name`. By default, no.
    ///
    /// Candle, Burn and cudarc call the driver, as most of Rust does, and HolisticTraceAnalysis' statistics of launches know the
    /// runtime API only.
    ///
    /// ```
    /// use kernspan::Chrome;
    ///
    /// let for_hta = Chrome::to_dir("runs/mnist").runtime_names(true);
    /// ```
    #[must_use]
    pub fn runtime_names(mut self, runtime_names: bool) -> Self {
        self.style.runtime_names = runtime_names;
        self
    }

    /// Whether to compress: `.json.gz`, which all readers take too. By default, no.
    #[cfg(feature = "gzip")]
    #[must_use]
    pub fn gzip(mut self, gzip: bool) -> Self {
        self.gzip = gzip;
        self
    }

    fn folder(&self) -> PathBuf {
        match self.style.flavor {
            Flavor::Kineto => self.folder.clone(),
            Flavor::TorchTensorBoard => self.folder.join("torch_tb_profiler"),
        }
    }
}

impl Exporter for Chrome {
    fn export(&mut self, trace: &Trace) -> ExportResult {
        let (folder, style) = (self.folder(), self.style);
        let path = match self.gzip {
            #[cfg(feature = "gzip")]
            true => file::write(&folder, trace, ".pt.trace.json.gz", |out| {
                // Level 1 is three times as fast as the default and a tenth larger.
                let mut out = flate2::write::GzEncoder::new(out, flate2::Compression::fast());
                kineto::write(trace, style, &mut out)?;
                out.finish().map(drop)
            }),
            _ => file::write(&folder, trace, ".pt.trace.json", |out| kineto::write(trace, style, out)),
        };
        Ok(vec![path?])
    }
}
