//! Pure functions of a [`Trace`]: what the report, exporters and your own code ask it.
//!
//! [`gpu_steps`] says how each GPU spent each step of a window, and what the time of the step depended on.

mod busy;
mod flops;
mod step_gpu;
mod usage;
mod workers;

pub(crate) use self::{
    flops::{Flops, SpanFlops},
    step_gpu::each_step,
    usage::percent_of,
};
pub use self::{
    step_gpu::{StepGpu, gpu_steps},
    usage::{GpuUsage, Verdict},
};
