//! Where the time went: the call tree over all windows, asked in different ways.

mod average;
mod averages;
mod gpu_steps;
mod gpus;
mod kernel_times;
mod kernels;
mod measured;
mod memory;
mod memory_peak;
mod op;
mod operation_times;
mod operations;
mod steps;
mod table;
mod texts;
mod tree;
mod units;

pub use self::average::{Average, SortBy};
pub use self::averages::Averages;
pub use self::gpu_steps::{DeviceUsage, GpuSteps};
pub use self::kernels::{KernelAverage, Kernels};
pub use self::memory::MemoryPeaks;
pub use self::memory_peak::{MemoryOwner, MemoryPeak};
pub use self::operations::{OperationAverage, Operations, SortOperationsBy};
pub use self::steps::StepTimes;

use self::{gpus::Gpus, operation_times::OperationTimes, tree::Tree};
use crate::{
    analysis::SpanFlops,
    delivery::Delivery,
    trace::{Attributions, Device, DeviceId, Gpu, Level, Losses, Trace},
};
use std::{fmt, path::PathBuf, time::Duration};

/// What [`finish`](crate::Profiler::finish) returns: where the time went, over all windows of the run.
///
/// Its `Display` is the table that PyTorch users know, and what GPUs did, if they were recorded; [`averages`](Self::averages),
/// [`kernels`](Self::kernels), [`operations`](Self::operations), [`gpu_steps`](Self::gpu_steps) and [`memory`](Self::memory) ask it in
/// other ways. With the feature `serde` it can be serialized.
#[derive(Default)]
pub struct Report {
    windows: u32,
    recorded: Duration,
    spans: u64,
    tree: Tree,
    steps: StepTimes,
    gpus: Gpus,
    operations: OperationTimes,
    losses: Losses,
    /// Windows that lack launches, with how many.
    incomplete: Vec<(u32, u64)>,
    filtered: Option<Level>,
    files: Vec<PathBuf>,
    deliveries: Vec<Delivery>,
}

impl Report {
    /// Rows of the table of kernels that `Display` shows, and of that of operations.
    const KERNELS: usize = 10;
    /// Incomplete windows that `Display` names.
    const INCOMPLETE: usize = 5;

    /// What these windows say, as of a run that had no others: for traces that were kept, or replayed.
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

    /// Says what became of GPUs where no window does.
    pub(crate) fn settle_gpu(&mut self, gpu: Gpu) {
        if self.gpus.state == Gpu::NotAsked {
            self.gpus.state = gpu;
        }
    }

    pub(crate) fn add_losses(&mut self, losses: Losses) {
        self.losses += losses;
    }

    pub(crate) fn add_files(&mut self, files: Vec<PathBuf>) {
        self.files.extend(files);
    }

    pub(crate) fn add_deliveries(&mut self, deliveries: Vec<Delivery>) {
        self.deliveries.extend(deliveries);
    }

    /// How many windows were recorded.
    pub fn windows(&self) -> u32 {
        self.windows
    }

    /// How long the windows were open, together.
    pub fn recorded(&self) -> Duration {
        self.recorded
    }

    /// How many span instances were recorded.
    pub fn spans(&self) -> u64 {
        self.spans
    }

    /// How long the recorded steps took.
    pub fn steps(&self) -> &StepTimes {
        &self.steps
    }

    /// What could not be kept, over the whole run.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// The most verbose level of spans that anybody could see, if that is not all: the subscriber has a filter for all of its layers, or
    /// a feature of `tracing` has left the others out. Models of candle-transformers have theirs at [`Level::Trace`].
    pub fn filtered(&self) -> Option<Level> {
        self.filtered
    }

    /// The files the exporters wrote.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Time by span, PyTorch's `key_averages()`: to be refined, iterated and printed.
    pub fn averages(&self) -> Averages<'_> {
        Averages::new(&self.tree)
    }

    /// Whether GPUs were recorded, and if not, why not; of the last window in which they should have been.
    pub fn gpu(&self) -> &Gpu {
        &self.gpus.state
    }

    /// The GPUs that the process sees.
    pub fn devices(&self) -> &[Device] {
        &self.gpus.devices
    }

    /// How many kernels, copies and fills were recorded.
    pub fn gpu_work(&self) -> u64 {
        self.gpus.attributions.total()
    }

    /// How it is known which spans these belong to.
    pub fn attributions(&self) -> Attributions {
        self.gpus.attributions
    }

    /// GPU time by kernel: to be iterated and printed.
    pub fn kernels(&self) -> Kernels<'_> {
        Kernels::new(&self.gpus.kernels)
    }

    /// What frameworks were asked to do, and the GPU time of that: to be refined, iterated and printed.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(&self.operations)
    }

    /// How the GPUs spent the recorded steps.
    pub fn gpu_steps(&self) -> &GpuSteps {
        &self.gpus.steps
    }

    /// What became of what exporters sent elsewhere, as to a collector of OpenTelemetry's.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// The most bytes of a GPU's memory that were in use after an allocation, if allocations were recorded.
    pub fn peak_memory(&self, device: DeviceId) -> Option<u64> {
        self.gpus.memory.get(device).map(|peak| peak.in_use)
    }

    /// Who had allocated the memory of each GPU when the most was in use: to be iterated and printed.
    pub fn memory(&self) -> MemoryPeaks<'_> {
        MemoryPeaks::new(&self.gpus.memory)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.averages().fmt(f)?;
        if !self.gpus.kernels.is_empty() {
            write!(f, "\n{}\n", self.kernels().limit(Self::KERNELS))?;
        }
        if !self.operations.is_empty() {
            write!(f, "\n{}\n", self.operations().limit(Self::KERNELS))?;
        }
        let count = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        write!(f, "{} in {}", count(self.spans, "span"), count(self.windows.into(), "window"))?;
        write!(f, " of {} together", units::time(self.recorded))?;
        writeln!(f, "{}", if self.steps.is_empty() { "" } else { "; " }.to_owned() + &self.steps.to_string())?;
        self.gpus.fmt(f)?;
        writeln!(f, "{}", self.losses)?;
        for (window, kernels) in self.incomplete.iter().take(Self::INCOMPLETE) {
            writeln!(f, "{}", incomplete(*window, *kernels))?;
        }
        if let more @ 1.. = self.incomplete.len().saturating_sub(Self::INCOMPLETE) {
            writeln!(f, "and so {} {more} more", if more == 1 { "is" } else { "are" })?;
        }
        if let Some(level) = self.filtered {
            writeln!(f, "spans below {level} were off: a filter for all layers, or a feature of tracing, hides them")?;
        }
        self.files.iter().try_for_each(|file| writeln!(f, "wrote {}", file.display()))?;
        self.deliveries.iter().try_for_each(|delivery| writeln!(f, "{delivery}"))
    }
}

/// Says that launches of a window never came back.
pub(crate) fn incomplete(window: u32, launches: u64) -> String {
    let kernels = if launches == 1 { "kernel" } else { "kernels" };
    format!("window {window} is incomplete: {launches} {kernels} never came back")
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut report = f.debug_struct("Report");
        report.field("windows", &self.windows).field("spans", &self.spans).field("losses", &self.losses);
        report.finish_non_exhaustive()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut report = serializer.serialize_struct("Report", 16)?;
        report.serialize_field("windows", &self.windows)?;
        report.serialize_field("recorded", &self.recorded)?;
        report.serialize_field("spans", &self.spans)?;
        report.serialize_field("steps", &self.steps)?;
        report.serialize_field("averages", &self.averages().limit(usize::MAX).rows())?;
        report.serialize_field("gpu", &self.gpus.state.to_string())?;
        report.serialize_field("devices", &self.gpus.devices)?;
        report.serialize_field("kernels", &self.kernels().limit(usize::MAX).rows())?;
        report.serialize_field("operations", &self.operations().limit(usize::MAX).rows())?;
        report.serialize_field("gpu_steps", &self.gpus.steps)?;
        report.serialize_field("attributions", &self.gpus.attributions)?;
        report.serialize_field("memory", &self.memory().peaks().collect::<Vec<_>>())?;
        report.serialize_field("losses", &self.losses)?;
        report.serialize_field("filtered", &self.filtered.map(|level| level.to_string()))?;
        report.serialize_field("files", &self.files)?;
        report.serialize_field("deliveries", &self.deliveries)?;
        report.end()
    }
}
