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
//! | [`modules`](Report::modules) | How many parameters and FLOPs has each module of the model, and what did it cost? |
//! | [`counters`](Report::counters) | How busy were the GPU's SMs, tensor cores and memory in each span? |
//! | [`lines`](Report::lines) | Which lines did the time of each span itself go to? |
//! | [`functions`](Report::functions) | Which functions took the CPU's time, and in which spans? |
//! | [`memory`](Report::memory) | Which spans held the GPU's memory when the most was in use? |
//! | [`modes`](Report::modes) | What did training, validation and inference of the model take? |
//! | [`step_time`](Report::step_time) | How long does a step take? |
//! | [`step_parts`](Report::step_parts) | Where does the time of a step go? |
//! | [`steps`](Report::steps) | How long did each step take? |
//! | [`recording_cost`](Report::recording_cost) | How much longer did steps take because they were recorded? |
//! | [`vitals`](Report::vitals) | How busy were the CPUs, disks and GPUs over the run, and what energy did it use? |
//! | [`gpu_steps`](Report::gpu_steps) | How busy was each GPU in each step, and what did it wait for? |
//!
//! The first seven are tables: sort, group and limit them, then print them with `{}` or take their rows. Tables are
//! [`Report::WIDTH`] columns wide wherever they are printed, unless you set another width or make them
//! [as wide as the terminal](Report::fit_terminal). [`Table`] and [`units`] are for tables of your own. For the figures
//! of a single window, see [`analysis`](crate::analysis). Whether a run is worse than an earlier one, the crate
//! `kernspan-check` says.
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

mod advice;
mod average;
mod averages;
mod call_tree;
mod completeness;
mod counters;
mod durations;
mod findings;
mod function_names;
mod gpu;
mod heap_lines;
mod idle_pools;
mod kernels;
#[cfg(feature = "read")]
mod key_averages;
#[cfg(feature = "read")]
mod key_rows;
mod labels;
mod leaks;
mod memory_peaks;
mod modes;
mod modules;
mod operations;
mod process_cpu;
mod recording_cost;
#[allow(clippy::module_inception, reason = "the module is named after its main type")]
mod report;
#[cfg(feature = "serving")]
mod requests;
mod sampled_lines;
mod short_names;
mod step_times;
mod table;
mod time_tree;
mod totals;
mod view;
mod vitals;
mod wrap;
mod written_files;

pub use self::{
    advice::Advice,
    average::{Average, Latency, SortBy},
    averages::Averages,
    completeness::Completeness,
    counters::{CounterAverage, CounterTable, CountersBy},
    findings::Findings,
    gpu::{DeviceUsage, GpuSteps},
    heap_lines::HeapLines,
    idle_pools::IdlePool,
    kernels::{KernelAverage, Kernels},
    leaks::{Leak, LeakOwner, Leaks, TooShort},
    memory_peaks::{MemoryOwner, MemoryPeak, MemoryPeaks},
    modules::{ModuleAverage, Modules},
    operations::{OperationAverage, Operations, SortOperationsBy},
    process_cpu::{ProcessCpu, ThreadCpu},
    recording_cost::{RecordingCost, StepQuartiles},
    report::{Report, ReportView},
    sampled_lines::{Functions, Lines},
    step_times::{GpuStepParts, RecordedStep, SlowStep, StepTimes},
    table::{Column, Table},
    time_tree::TimeTree,
    vitals::EnergyRates,
    wrap::Prose,
};
#[cfg(feature = "read")]
pub use self::{key_averages::key_averages, key_rows::KeyAverage};
#[doc(no_inline)]
pub use crate::units;
pub use crate::{
    disk_limit::RemovedFiles,
    hint::{DisabledSpan, DisabledSpans, Hint},
    kernel_names::short_kernels,
};

pub(crate) use self::{
    averages::PathRows, function_names::short_functions, report::incomplete, sampled_lines::OUTSIDE_SPANS,
};
