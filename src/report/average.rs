//! Rows of the table of spans, and the columns they can be sorted by.

use super::{durations::Durations, table::Table, totals::GpuTotals, units};
use crate::{analysis::percent_of, trace::HeapUse};
use std::{cmp::Ordering, time::Duration};

/// The column by which the rows of [`Averages`](super::Averages) are sorted, largest value first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortBy {
    /// Time with nested spans.
    #[default]
    TotalCpu,
    /// Time without nested spans.
    SelfCpu,
    /// Mean time of a call, with nested spans.
    AverageCpu,
    /// Number of calls.
    Calls,
    /// Floating-point operations, with nested spans.
    Flops,
    /// GPU time without nested spans.
    SelfGpu,
    /// GPU time with nested spans.
    TotalGpu,
    /// GPU memory allocated less GPU memory freed, with nested spans.
    GpuMemory,
    /// GPU memory allocated less GPU memory freed, without nested spans.
    SelfGpuMemory,
    /// Memory allocated on the heap less memory freed, with nested spans.
    CpuMemory,
    /// The number of allocations on the heap, with nested spans.
    Allocations,
    /// CPU time with nested spans, as opposed to wall-clock time.
    OnCpu,
    /// The name, in alphabetical order.
    Name,
}

/// A row of [`Averages`](super::Averages): the spans of one name, or of one name, module, shape and stack if the rows
/// are grouped so.
///
/// Times with `cpu` in their names are wall-clock time on the host between entering and exiting, as PyTorch's are: also
/// time in which the thread waited or did not run. Times with `on_cpu` are those in which it ran, if that was
/// [read](crate::CpuTime::spans). Times with `gpu` are those of work on a GPU.
///
/// An instance that is nested in another instance of the same row, as in a recursive function, is one more of the
/// `calls`, but totals, averages and percentiles "with nested spans" do not count it again: they are of the
/// `outermost_calls`, and `average_cpu` times `outermost_calls` is `total_cpu` unless calls were cut. A line below the
/// printed table says so if there are any.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Average {
    /// The name of the spans.
    pub name: String,
    /// The target of the spans; by default, that is the module path.
    pub target: String,
    /// The source location as `file:line`, if known.
    pub location: Option<String>,
    /// The path of the module in its model, if grouped by module: see
    /// [`convention::MODULE`](crate::trace::convention::MODULE).
    pub module: Option<String>,
    /// The number of the module's parameters, if grouped by module and stated: see
    /// [`convention::PARAMETERS`](crate::trace::convention::PARAMETERS).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub parameters: Option<u64>,
    /// The size of the module's parameters in bytes, if grouped by module and stated.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub parameter_bytes: Option<u64>,
    /// The shapes of the arguments, if grouped by shape.
    pub shapes: Option<String>,
    /// The names of the spans that they work for, from the inside out, if grouped by stack: see
    /// [`Span::caller`](crate::trace::Span::caller). Times and GPU work count for spans on the same thread only. Of a
    /// deeper stack these are the innermost 100 names, and the last one says how many more there are.
    pub stack: Vec<String>,
    /// The number of calls. A call is usually one enter of a span; all polls of a future are one call, too.
    ///
    /// [`Span::previous`](crate::trace::Span::previous) says which enters are one call. Calls that are cut by the edge
    /// of a window are in `cut_calls` instead. A span that is made once and entered forever, such as that of a layer,
    /// is called at each enter if another span is around it. Outside of others it is called once in each step, or is
    /// one call if there are no steps, and only `enters` says how often it did something.
    pub calls: u64,
    /// The number of calls that are cut by the edge of a window, once for each window: nobody knows how long they took.
    /// Only totals and self times have the part in the window; averages, percentiles and the longest time do not.
    pub cut_calls: u64,
    /// The number of enters: for a future, one for each poll, and one when it was dropped.
    pub enters: u64,
    /// The number of whole calls that are not nested in another call of the same row.
    pub outermost_calls: u64,
    /// Wall-clock time without nested spans.
    pub self_cpu: Duration,
    /// Wall-clock time with nested spans.
    pub total_cpu: Duration,
    /// Mean wall-clock time of an outermost call, with nested spans. Time between two enters of a call does not count:
    /// see `latency`.
    pub average_cpu: Duration,
    /// The median time of an outermost call, with nested spans: half of them took no longer. The median of an even
    /// number is the mean of the middle two.
    ///
    /// This and the other percentiles are exact in rows of up to 128 outermost calls. Of more, only a histogram of the
    /// times is kept, and a percentile is less than 1 % from the exact one.
    pub p50_cpu: Duration,
    /// The 95th percentile of the time of an outermost call, with nested spans: 95 % of them took no longer.
    pub p95_cpu: Duration,
    /// Wall-clock time of the longest call, with nested spans. It is exact.
    pub longest_cpu: Duration,
    /// The time from the first enter of a call to its last exit; `None` if no call was entered more than once. It is
    /// shorter than the time of the call if several threads were in the call at once.
    pub latency: Option<Latency>,
    /// `self_cpu` in percent of the recorded time of all threads.
    pub self_percent: f64,
    /// `total_cpu` in percent of the recorded time of all threads.
    pub total_percent: f64,
    /// Floating-point operations that the spans state themselves: see
    /// [`convention::FLOPS`](crate::trace::convention::FLOPS).
    pub flops: u64,
    /// Floating-point operations with nested spans.
    ///
    /// If a span states its operations, that number counts. Otherwise, it is the sum over the spans nested in it on its
    /// thread and over the [operations](crate::trace::Operation) that frameworks were asked for in it.
    pub total_flops: u64,
    /// `total_flops` per second of `total_gpu`, or of `total_cpu` if there was no GPU work; `None` if `total_flops` is
    /// 0.
    pub flops_per_second: Option<f64>,
    /// Utilisation of the GPUs in percent: the time that `total_flops` take at the GPUs'
    /// [peak](crate::trace::Device::peak_flops), divided by `total_gpu`.
    ///
    /// The peak is that for the element type of the first floating-point argument, or else of the result: see
    /// [`convention::DTYPE`](crate::trace::convention::DTYPE). It is `None` if there was no GPU work, if a peak is not
    /// known, or if it is not known which of several GPUs did the operations.
    ///
    /// This is utilisation of GPU time. For utilisation of the whole step, which is usually called MFU, see
    /// [`GpuUsage::mfu`](crate::analysis::GpuUsage::mfu).
    pub gpu_mfu: Option<f64>,
    /// Bytes that the spans state they moved: see [`convention::BYTES`](crate::trace::convention::BYTES).
    pub bytes: u64,
    /// What the spans allocated and freed on the heap themselves, if that was counted: see
    /// [`Allocator`](crate::Allocator).
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "HeapUse::is_nothing"))]
    pub self_heap: HeapUse,
    /// What was allocated and freed on the heap, with nested spans.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "HeapUse::is_nothing"))]
    pub total_heap: HeapUse,
    /// CPU time without nested spans: how long threads ran, as opposed to how long the spans took. It is `None` unless
    /// [`CpuTime::spans`](crate::CpuTime::spans) is set. Calls that are cut by the edge of a window have none.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub self_on_cpu: Option<Duration>,
    /// CPU time with nested spans.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub total_on_cpu: Option<Duration>,
    /// `total_on_cpu` in percent of the wall-clock time of the same spans: the rest was spent waiting, or in the queue
    /// for a core.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub on_cpu_percent: Option<f64>,
    /// Time of the GPU work that the spans caused themselves. Work that ran at the same time is counted in full.
    pub self_gpu: Duration,
    /// Time of the GPU work with nested spans.
    pub total_gpu: Duration,
    /// Mean GPU time of an outermost call, with nested spans.
    pub average_gpu: Duration,
    /// `self_gpu` in percent of the time of all GPU work.
    pub self_gpu_percent: f64,
    /// Bytes of GPU memory that the spans allocated themselves, less those they freed.
    pub self_gpu_memory: i64,
    /// Bytes of GPU memory allocated, less those freed, with nested spans.
    pub total_gpu_memory: i64,
    /// The most bytes of a GPU's memory in use, by anybody, after an allocation made in the spans or in nested ones;
    /// `None` if they allocated nothing. See [`Allocation::in_use`](crate::trace::Allocation::in_use).
    pub peak_gpu_memory: Option<u64>,
    /// Kernels launched, with nested spans.
    pub kernels: u64,
    /// The mean estimated [`Occupancy`](crate::trace::Occupancy) of these kernels in percent, weighted by their
    /// duration, if known.
    pub occupancy: Option<f64>,
}

/// The time from the first enter of a call to its last exit, as far as the window shows them: for a future, from its
/// first poll until it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Latency {
    /// The mean.
    pub average: Duration,
    /// The median, as exact as [`Average::p50_cpu`].
    pub p50: Duration,
    /// The 95th percentile.
    pub p95: Duration,
    /// The longest. It is exact.
    pub longest: Duration,
}

impl Average {
    /// The name of the row for GPU work that belongs to no known span. There is such a row only if there is such work.
    pub const UNATTRIBUTED: &'static str = "[unattributed]";

    /// Returns a row with the GPU columns only. `all_gpu` is the time of all GPU work.
    pub(super) fn of_gpu(own: &GpuTotals, total: &GpuTotals, all_gpu: Duration) -> Self {
        Self {
            self_gpu: own.time,
            total_gpu: total.time,
            self_gpu_percent: percent_of(own.time, all_gpu),
            self_gpu_memory: own.memory,
            total_gpu_memory: total.memory,
            peak_gpu_memory: total.peak_memory,
            kernels: total.kernels,
            occupancy: total.occupancy.percent(),
            ..Self::default()
        }
    }

    /// Returns the table of the rows. Its columns are PyTorch's, with titles that say what they are.
    ///
    /// Where room is short, columns go in the order of how little they are used: shares and amounts first, which can be
    /// computed from others, then rates and memory. Times and calls stay the longest.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        let labels: Vec<_> = rows.iter().map(|row| row.label(rows)).collect();
        table.text("Name", &labels, String::clone);
        table.number("Self %", rows, |row| units::percent(row.self_percent)).droppable(3);
        table.number("Self time", rows, |row| units::column_time(row.self_cpu)).droppable(15);
        table.number("Total %", rows, |row| units::percent(row.total_percent)).droppable(2);
        table.number("Total time", rows, |row| units::column_time(row.total_cpu));
        table.number("Avg time", rows, |row| row.unless_all_cut(units::column_time(row.average_cpu))).droppable(13);
        if rows.iter().any(|row| !row.p95_cpu.is_zero()) {
            table.number("p50", rows, |row| row.has_whole_calls().then(|| row.percentile(row.p50_cpu))).droppable(0);
            table.number("p95", rows, |row| row.has_whole_calls().then(|| row.percentile(row.p95_cpu))).droppable(4);
            table
                .number("Longest", rows, |row| row.has_whole_calls().then(|| units::column_time(row.longest_cpu)))
                .droppable(1);
        }
        table.number("On CPU", rows, |row| row.total_on_cpu.map(units::column_time)).droppable(14);
        table.number("On CPU %", rows, |row| row.on_cpu_percent.map(units::percent)).droppable(13);
        table.number("Self on CPU", rows, |row| row.self_on_cpu.map(units::column_time)).droppable(6);
        if rows.iter().any(|row| !row.total_gpu.is_zero()) {
            table.number("Self CUDA", rows, |row| units::column_time(row.self_gpu)).droppable(14);
            table.number("Self CUDA %", rows, |row| units::percent(row.self_gpu_percent)).droppable(8);
            table.number("CUDA total", rows, |row| units::column_time(row.total_gpu));
            table
                .number("CUDA time avg", rows, |row| row.unless_all_cut(units::column_time(row.average_gpu)))
                .droppable(5);
        }
        if rows.iter().any(|row| row.self_gpu_memory != 0 || row.total_gpu_memory != 0) {
            table.number("CUDA Mem", rows, |row| units::memory(row.total_gpu_memory)).droppable(12);
            table.number("Self CUDA Mem", rows, |row| units::memory(row.self_gpu_memory)).droppable(7);
        }
        table.number("CUDA Peak", rows, |row| row.peak_gpu_memory.map(units::bytes)).droppable(6);
        if rows.iter().any(|row| !row.total_heap.is_nothing()) {
            table.number("CPU Mem", rows, |row| units::memory(row.total_heap.net())).droppable(12);
            table.number("Self CPU Mem", rows, |row| units::memory(row.self_heap.net())).droppable(7);
            table.number("# of Allocs", rows, |row| row.total_heap.allocations.to_string()).droppable(6);
        }
        table.number("Occupancy", rows, |row| row.occupancy.map(units::percent)).droppable(11);
        table.number("# of Calls", rows, |row| units::calls(row.calls, row.cut_calls));
        if rows.iter().any(|row| row.latency.is_some()) {
            table.number("# of Enters", rows, |row| row.enters.to_string()).droppable(9);
            table
                .number("Latency p50", rows, |row| row.latency.map(|latency| row.percentile(latency.p50)))
                .droppable(5);
            table
                .number("Latency p95", rows, |row| row.latency.map(|latency| row.percentile(latency.p95)))
                .droppable(12);
        }
        table.text("Input Shapes", rows, |row| row.shapes.clone());
        table.text("Inside", rows, |row| (!row.stack.is_empty()).then(|| row.stack.join(" < "))).keep_start();
        table.number("Total FLOPs", rows, |row| units::flops(row.total_flops)).droppable(4);
        table.number("FLOP/s", rows, |row| row.flops_per_second.map(units::flop_rate)).droppable(9);
        table.number("GPU MFU", rows, |row| row.gpu_mfu.map(units::percent)).droppable(10);
        table.number("Total Bytes", rows, |row| (row.bytes > 0).then(|| units::bytes(row.bytes))).droppable(1);
        if let nested @ 1.. = rows.iter().map(|row| row.calls.saturating_sub(row.outermost_calls)).sum::<u64>() {
            let calls = if nested == 1 { "call was" } else { "calls were" };
            table.note(format!("{nested} {calls} inside a call of the same row: only # of Calls counts them again"));
        }
        table
    }

    /// Formats a percentile of the times of calls, with as many digits as are known.
    fn percentile(&self, time: Duration) -> String {
        if self.has_exact_percentiles() { units::column_time(time) } else { units::rough_time(time) }
    }

    /// Whether percentiles of the times of calls are exact, rather than known to three digits.
    pub(crate) fn has_exact_percentiles(&self) -> bool {
        self.outermost_calls <= Durations::EXACT as u64
    }

    /// Whether there are calls that percentiles are of.
    pub(crate) fn has_whole_calls(&self) -> bool {
        self.outermost_calls > 0
    }

    /// Returns the text of a mean, which calls that are all cut do not have.
    fn unless_all_cut(&self, text: String) -> Option<String> {
        (self.has_whole_calls() || self.cut_calls == 0).then_some(text)
    }

    /// Returns the text of the first column: the module if the rows are grouped by module, or else the name. If another
    /// row has the same, the name or the target is added.
    fn label(&self, rows: &[Self]) -> String {
        if let Some(module) = &self.module {
            let same = rows.iter().any(|other| other.module.as_ref() == Some(module) && other.name != self.name);
            return if same { format!("{module} ({})", self.name) } else { module.clone() };
        }
        if rows.iter().any(|other| other.name == self.name && other.target != self.target) {
            format!("{}::{}", self.target, self.name)
        } else {
            self.name.clone()
        }
    }
}

impl SortBy {
    /// Compares two rows.
    pub(super) fn order(self, a: &Average, b: &Average) -> Ordering {
        match self {
            Self::TotalCpu => b.total_cpu.cmp(&a.total_cpu),
            Self::SelfCpu => b.self_cpu.cmp(&a.self_cpu),
            Self::AverageCpu => b.average_cpu.cmp(&a.average_cpu),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Flops => b.total_flops.cmp(&a.total_flops),
            Self::SelfGpu => b.self_gpu.cmp(&a.self_gpu),
            Self::TotalGpu => b.total_gpu.cmp(&a.total_gpu),
            Self::GpuMemory => b.total_gpu_memory.cmp(&a.total_gpu_memory),
            Self::SelfGpuMemory => b.self_gpu_memory.cmp(&a.self_gpu_memory),
            Self::CpuMemory => b.total_heap.net().cmp(&a.total_heap.net()),
            Self::Allocations => b.total_heap.allocations.cmp(&a.total_heap.allocations),
            Self::OnCpu => b.total_on_cpu.cmp(&a.total_on_cpu),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

#[cfg(test)]
mod tests;
