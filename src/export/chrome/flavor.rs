//! The flavors of the format, one for each group of readers, and how each writes times.

use crate::{
    export::time_text::Micros,
    trace::{Timestamp, Trace},
};

/// The flavor of a [`Chrome`](crate::Chrome) file, which depends on its readers.
///
/// No file suits all of them: HolisticTraceAnalysis fails on a file that TensorBoard's plugin shows completely, and the
/// plugin fails on the other.
///
/// ```no_run
/// # use kernspan::{Chrome, Profiler, export::Flavor};
/// let (layer, profiler) = Profiler::builder()
///     .export(Chrome::to_dir("runs/mnist"))
///     .export(Chrome::to_dir("runs/mnist").flavor(Flavor::TorchTensorBoard))
///     .build()?;
/// # drop((layer, profiler));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Flavor {
    /// The format that `torch.profiler` writes today, for Perfetto and HolisticTraceAnalysis.
    #[default]
    Kineto,
    /// The format that the last release of TensorBoard's plugin for PyTorch reads, torch-tb-profiler 0.4.3.
    ///
    /// The files are in a separate folder, `torch_tb_profiler`, inside the exporter's: `tensorboard --logdir
    /// runs/mnist/torch_tb_profiler`.
    ///
    /// - Calls to the GPU's API are `runtime`, whichever API it is.
    /// - Spans of the [input pipeline](crate::trace::InputStage) on a thread that steps are
    ///   `enumerate(DataLoader)#kernspan.__next__`, so that the Overview shows how much of each step loads data.
    /// - Each span has a `Call stack`: its backtrace, or else the spans around it.
    /// - A span with `op.module` (see [`convention`](crate::trace::convention)) is also `nn.Module: PATH`, for the
    ///   Module view.
    /// - A launch of only an NCCL kernel lies in an op such as `nccl:all_reduce`, for the Distributed view, unless it
    ///   was handed over from another thread.
    /// - Steps are on the host only.
    ///
    /// The plugin changes some of what it shows:
    ///
    /// - It extends a step to the end of all work launched in it.
    /// - It leaves out final steps that launched less than those before.
    /// - It does not count calls in the host self time of their span.
    /// - It merges a span and its only child into one op if both have the same name.
    /// - It would divide by zero for a step that has no time left. Such a step is the annotation `step#N` instead.
    TorchTensorBoard,
}

/// The options that the user can set.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) flavor: Flavor,
    /// Whether calls to CUDA's driver API get the names of its runtime API.
    pub(super) runtime_names: bool,
}

/// Converts timestamps to the microseconds of a document, which count from its base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    flavor: Flavor,
    base: u64,
}

impl Times {
    /// The nanoseconds of a day. The base is a multiple of it, so that the ranks of a run agree on the base, and
    /// microseconds since then are small enough for readers that add them in floating point.
    const DAY: u64 = 24 * 3600 * 1_000_000_000;

    pub(super) fn new(trace: &Trace, flavor: Flavor) -> Self {
        Self { flavor, base: trace.start().as_unix_nanos() / Self::DAY * Self::DAY }
    }

    /// Returns the base, in nanoseconds since 1970.
    pub(super) fn base(self) -> u64 {
        self.base
    }

    /// Returns the time of a moment.
    #[inline]
    pub(super) fn at(self, at: Timestamp) -> Micros {
        let nanos = self.since_base(at);
        match self.flavor {
            Flavor::Kineto => Micros::of(nanos),
            Flavor::TorchTensorBoard => Micros::of_ticks(Micros::ticks(nanos)),
        }
    }

    /// Returns the duration from `start` to `end`. A reader that adds it to the text of the start gets the text of the
    /// end.
    #[inline]
    pub(super) fn between(self, start: Timestamp, end: Timestamp) -> Micros {
        match self.flavor {
            Flavor::Kineto => Micros::of(end.as_unix_nanos().saturating_sub(start.as_unix_nanos())),
            Flavor::TorchTensorBoard => {
                let [start, end] = [start, end].map(|at| Micros::ticks(self.since_base(at)));
                Micros::of_ticks(end.saturating_sub(start))
            }
        }
    }

    fn since_base(self, at: Timestamp) -> u64 {
        at.as_unix_nanos().saturating_sub(self.base)
    }
}
