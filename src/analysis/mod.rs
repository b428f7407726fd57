//! Figures computed from one recorded window: pure functions of a [`Trace`](crate::Trace).
//!
//! Use these in an exporter or in [`on_trace`](crate::ProfilerBuilder::on_trace), where each window is at hand as soon
//! as it is recorded. For tables over all windows of a run, see [`report`](crate::report).
//!
//! [`gpu_steps`] returns how each GPU spent each step ([`StepGpu`]): how long it was busy or idle, how much it copied
//! and computed ([`GpuUsage`]), and whether the input, the host or the GPU was the bottleneck ([`Verdict`]).
//!
//! [`breakdown`] tells the compute, exposed communication, exposed copies and idle time of each GPU apart,
//! [`stream_idle`] why streams were idle, and [`queue_lengths`] how far the host was ahead.
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

mod breakdown;
mod device_timeline;
mod finding;
mod findings;
mod flops;
mod gpu_steps;
mod gpu_usage;
mod intervals;
mod simulation;
mod span_calls;
mod span_devices;
mod span_flops;
mod step_gpu;

pub use self::{
    breakdown::{DeviceBreakdown, QueueLength, StreamIdle, breakdown, queue_lengths, stream_idle},
    finding::{Finding, FindingKind, Saving, TimeRange},
    findings::findings,
    gpu_steps::gpu_steps,
    gpu_usage::{GpuUsage, Verdict},
    step_gpu::StepGpu,
};
pub(crate) use self::{
    flops::Flops, gpu_steps::gpu_steps_with_reasons, gpu_usage::percent_of, span_calls::SpanCalls,
    span_flops::SpanFlops,
};
