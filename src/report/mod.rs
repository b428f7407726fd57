//! The report of a run: where the time went, as tables to print and as rows to compute with.
//!
//! [`Profiler::finish`](crate::Profiler::finish) returns a [`Report`] of all recorded windows, and [`Report::of`] makes
//! one of traces that a program has kept. Print it for an overview, or ask it one question:
//!
//! | method | question |
//! |---|---|
//! | [`averages`](Report::averages) | How long did each span take, on the CPU and on the GPU? |
//! | [`kernels`](Report::kernels) | Which kernels and copies took the GPU's time? |
//! | [`operations`](Report::operations) | Which operations of a framework took the GPU's time? |
//! | [`memory`](Report::memory) | Which spans held the GPU's memory when the most was in use? |
//! | [`steps`](Report::steps) | How long did the steps take? |
//! | [`gpu_steps`](Report::gpu_steps) | How busy was each GPU in each step, and what did it wait for? |
//!
//! The first four are tables: sort, group and limit them, then print them with `{}` or take their rows. For the figures
//! of a single window, see [`analysis`](crate::analysis).
//!
//! ```
//! use kernspan::{Profiler, report::SortBy};
//! use tracing_subscriber::prelude::*;
//!
//! let (layer, profiler) = Profiler::builder().build()?;
//! tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
//!     (0..3).for_each(|_| tracing::info_span!("forward").in_scope(|| ()));
//! });
//! let report = profiler.finish()?;
//! println!("{report}");
//!
//! let most_called = report.averages().sort_by(SortBy::Calls).limit(1).rows();
//! assert_eq!((most_called[0].name.as_str(), most_called[0].calls), ("forward", 3));
//! # Ok::<(), kernspan::Error>(())
//! ```

mod average;
mod averages;
mod call_tree;
mod display;
mod gpu_steps;
mod gpu_summary;
mod highest_peaks;
mod interner;
mod kernel_average;
mod kernel_times;
mod kernels;
mod limits;
mod mean_occupancy;
mod memory_peak;
mod memory_peaks;
mod operation_average;
mod operation_times;
mod operations;
#[cfg(feature = "serde")]
mod serialize;
mod shapes;
mod step_times;
mod table;
mod totals;
mod units;
mod view;

pub use self::{
    average::{Average, SortBy},
    averages::Averages,
    gpu_steps::{DeviceUsage, GpuSteps},
    kernel_average::KernelAverage,
    kernels::Kernels,
    memory_peak::{MemoryOwner, MemoryPeak},
    memory_peaks::MemoryPeaks,
    operation_average::{OperationAverage, SortOperationsBy},
    operations::Operations,
    step_times::StepTimes,
};

pub(crate) use self::display::incomplete;
use self::{call_tree::CallTree, gpu_summary::GpuSummary, operation_times::OperationTimes};
use crate::{
    analysis::SpanFlops,
    delivery::Delivery,
    trace::{Attributions, Device, DeviceId, Gpu, Level, Losses, Trace},
};
use std::{fmt, path::PathBuf, time::Duration};

/// Where the time went, over all windows of a run: the result of [`finish`](crate::Profiler::finish).
///
/// `Display` writes the table of spans as PyTorch prints it, then the kernels, the operations and the GPUs if there are
/// any, the losses, and the files that were written. For other tables, see the [module](self). With the feature `serde`,
/// a report can be serialized.
#[derive(Default)]
pub struct Report {
    windows: u32,
    recorded: Duration,
    spans: u64,
    tree: CallTree,
    steps: StepTimes,
    gpus: GpuSummary,
    operations: OperationTimes,
    losses: Losses,
    /// Each window that lacks launches, and the number of these launches.
    incomplete: Vec<(u32, u64)>,
    filtered: Option<Level>,
    files: Vec<PathBuf>,
    deliveries: Vec<Delivery>,
}

impl Report {
    /// Returns the report of these windows, for traces that were kept or replayed.
    ///
    /// ```
    /// # fn show(trace: &kernspan::Trace) {
    /// println!("{}", kernspan::Report::of([trace]));
    /// # }
    /// ```
    pub fn of<'a>(windows: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut report = Self::default();
        windows.into_iter().for_each(|window| report.add_trace(window));
        report
    }

    /// Adds a window.
    pub(crate) fn add_trace(&mut self, trace: &Trace) {
        self.windows += 1;
        self.recorded += trace.duration();
        self.spans += trace.spans().len() as u64;
        let flops = SpanFlops::of(trace);
        self.tree.add(trace, &flops);
        self.steps.add(trace.steps());
        self.gpus.add(trace, &flops);
        self.operations.add(trace);
        self.losses += *trace.losses();
        let unfinished = trace.losses().gpu_unfinished;
        self.incomplete.extend((unfinished > 0).then_some((trace.window(), unfinished)));
        self.filtered = trace.filtered().or(self.filtered);
    }

    /// Sets the state of the GPUs, if no window has set it.
    pub(crate) fn settle_gpu(&mut self, gpu: Gpu) {
        if self.gpus.state == Gpu::NotAsked {
            self.gpus.state = gpu;
        }
    }

    /// Adds losses that belong to no window.
    pub(crate) fn add_losses(&mut self, losses: Losses) {
        self.losses += losses;
    }

    /// Adds files that were written.
    pub(crate) fn add_files(&mut self, files: Vec<PathBuf>) {
        self.files.extend(files);
    }

    /// Adds the results of exporters that send elsewhere.
    pub(crate) fn add_deliveries(&mut self, deliveries: Vec<Delivery>) {
        self.deliveries.extend(deliveries);
    }

    /// Returns the number of recorded windows.
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// Returns how long the windows were open, added up.
    pub fn recorded(&self) -> Duration {
        self.recorded
    }

    /// Returns the number of recorded span instances.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// Returns the durations of the recorded steps.
    pub fn steps(&self) -> &StepTimes {
        &self.steps
    }

    /// Returns what could not be recorded, over the whole run.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// Returns the most verbose level of spans that could be recorded, or `None` if all levels could.
    ///
    /// There is such a level if the subscriber has a filter for all its layers, or if a feature of `tracing` turns more
    /// verbose levels off. The spans of candle-transformers have [`Level::Trace`].
    pub fn filtered(&self) -> Option<Level> {
        self.filtered
    }

    /// Returns the files that the exporters wrote.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the table of time by span, like PyTorch's `key_averages()`.
    pub fn averages(&self) -> Averages<'_> {
        Averages::new(&self.tree)
    }

    /// Returns whether GPUs were recorded, and if not, why not. It is that of the last window that was to record them.
    pub fn gpu(&self) -> &Gpu {
        &self.gpus.state
    }

    /// Returns the GPUs that the process sees.
    pub fn devices(&self) -> &[Device] {
        &self.gpus.devices
    }

    /// Returns the number of recorded kernels, copies and fills.
    pub fn gpu_work(&self) -> u64 {
        self.gpus.attributions.total()
    }

    /// Returns how many kernels, copies and fills were attributed to a span, by the kind of attribution.
    pub fn attributions(&self) -> Attributions {
        self.gpus.attributions
    }

    /// Returns the table of GPU time by kernel.
    pub fn kernels(&self) -> Kernels<'_> {
        Kernels::new(&self.gpus.kernels)
    }

    /// Returns the table of the operations that frameworks were asked for, with their GPU time.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(&self.operations)
    }

    /// Returns the usage of each GPU in each recorded step.
    pub fn gpu_steps(&self) -> &GpuSteps {
        &self.gpus.steps
    }

    /// Returns what exporters have sent elsewhere, such as to an OpenTelemetry collector, and what was lost on the way.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Returns the most bytes of a GPU's memory that were in use after an allocation, if allocations were recorded.
    pub fn peak_memory(&self, device: DeviceId) -> Option<u64> {
        self.gpus.memory.get(device).map(|peak| peak.in_use)
    }

    /// Returns the memory peak of each GPU, with the spans that had allocated the memory.
    pub fn memory(&self) -> MemoryPeaks<'_> {
        MemoryPeaks::new(&self.gpus.memory)
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut report = f.debug_struct("Report");
        report.field("windows", &self.windows).field("spans", &self.spans).field("losses", &self.losses);
        report.finish_non_exhaustive()
    }
}
