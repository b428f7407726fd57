//! Figures computed from one recorded window: pure functions of a [`Trace`](crate::Trace).
//!
//! Use these in an exporter or in [`on_trace`](crate::ProfilerBuilder::on_trace), where each window is at hand as soon
//! as it is recorded. For tables over all windows of a run, see [`report`](crate::report).
//!
//! [`gpu_steps`] returns how each GPU spent each step ([`StepGpu`]): how long it was busy or idle, how much it copied
//! and computed ([`GpuUsage`]), and whether the input, the host or the GPU was the bottleneck ([`Verdict`]).
//!
//! [`breakdown`] tells the compute, exposed communication, exposed copies and idle time of each GPU apart,
//! [`stream_idle`] why streams were idle, and [`queue_lengths`] how far the host was ahead. [`kernel_kinds`] tells
//! which kinds of work ran at once, [`kernel_classes`] how well kernels use the GPU, and [`launch_stats`] what launches
//! cost the host. [`step_breakdown`] tells where the time of each step went, on the GPU and, while that was idle, on
//! the host; [`span_costs`] what each span cost on both, and how near that is to the GPU's limits.
//!
//! [`critical_path`] returns the chain of host time and GPU work that the window waited for. [`findings`] returns what
//! makes steps slow, and what a change would save; [`typical_step`] the time of the step that they speak of.
//!
//! ```
//! use kernspan::{Profiler, analysis::{Verdict, gpu_steps}};
//!
//! let (layer, profiler) = Profiler::builder()
//!     .on_trace(|window| {
//!         for step in gpu_steps(window) {
//!             if step.usage.verdict == Verdict::InputBound {
//!                 eprintln!("step {}: the GPU waited {:?} for data", step.step, step.usage.input);
//!             }
//!         }
//!     })
//!     .build()?;
//! # drop(layer);
//! # profiler.finish()?;
//! # Ok::<(), kernspan::Error>(())
//! ```

mod advice;
mod breakdown;
mod call_kind;
mod collectives;
mod critical_path;
mod device_timeline;
mod duration_stats;
mod finding;
mod findings;
mod flops;
mod functions;
mod gpu_steps;
mod gpu_usage;
mod intervals;
mod kernel_classes;
mod kernel_kinds;
mod launch_stats;
mod matrix_kernel;
mod quantile;
mod queue_length;
mod ranks;
mod simulation;
mod span_calls;
mod span_costs;
mod span_devices;
mod span_flops;
mod step_breakdown;
mod step_gpu;
mod step_sweep;
mod stream_idle;
mod stream_work;
mod typical_step;
mod work_kind;

pub use self::{
    breakdown::{DeviceBreakdown, breakdown},
    critical_path::{PathKind, PathPart, critical_path},
    duration_stats::DurationStats,
    finding::{Finding, FindingKind, Remedy, Saving, TimeRange},
    findings::findings,
    gpu_steps::gpu_steps,
    gpu_usage::{GpuUsage, Verdict},
    kernel_classes::{KernelClasses, kernel_classes},
    kernel_kinds::{KernelKinds, kernel_kinds},
    launch_stats::{Launch, LaunchStats, launch_stats},
    queue_length::{QueueLength, queue_lengths},
    span_costs::{Roofline, SpanCost, span_costs},
    step_breakdown::{StepBreakdown, step_breakdown},
    step_gpu::StepGpu,
    stream_idle::{StreamIdle, stream_idle},
    typical_step::{TypicalStep, typical_step},
};
pub(crate) use self::{
    call_kind::CallKind,
    duration_stats::{square, standard_deviation},
    findings::findings_and_step,
    flops::Flops,
    gpu_steps::gpu_steps_with_reasons,
    gpu_usage::percent_of,
    quantile::{at_rank, quantile, rank},
    ranks::{RankTimes, SLOW as SLOW_RANK, slow_rank},
    span_calls::SpanCalls,
    span_costs::{CostNode, cost_nodes},
    span_flops::SpanFlops,
    work_kind::WorkKind,
};
