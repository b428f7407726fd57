//! kernspan for [Candle](candle_core): a span for each module, backward pass, optimizer step and wait for data, with
//! shapes, FLOPs and memory, and each GPU kernel in the span of the module that launched it.
//!
//! ```
//! use candle_core::{DType, Device, Result, Tensor};
//! use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
//! use kernspan::{Profiler, Schedule};
//! use kernspan_candle::{Profiled, data, nn};
//! use tracing_subscriber::prelude::*;
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(1).warmup(1).active(3).repeat(1))
//!     .step_on("train_step") // its end is the end of the step
//!     .build()?;
//! tracing_subscriber::registry().with(layer).init();
//!
//! let variables = VarMap::new();
//! let vb = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
//! let model = candle_nn::seq()
//!     .add(nn::linear(16, 32, vb.pp("fc1"))?) // was candle_nn::linear
//!     .add(candle_nn::Activation::Relu)
//!     .add(nn::linear(32, 1, vb.pp("fc2"))?);
//! let mut optimizer = Profiled::new(AdamW::new_lr(variables.all_vars(), 1e-3)?);
//! # let batches = (0..8).map(|_| Tensor::ones((4, 16), DType::F32, &Device::Cpu)).collect::<Result<Vec<_>>>()?;
//!
//! for batch in data(batches) {
//!     tracing::info_span!("train_step").in_scope(|| {
//!         let loss = model.forward(&batch)?.sqr()?.mean_all()?;
//!         optimizer.backward_step(&loss)
//!     })?;
//! }
//! let report = profiler.finish_and_print()?;
//! println!("{}", report.kernels().group_by(kernspan_candle::kernel_op)); // on a GPU
//! # assert_eq!(report.steps().count(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! - [`nn`]: candle-nn's layers and constructors, traced. Changing the `use` lines traces a whole model.
//! - [`Traced`] wraps any [`Module`](candle_nn::Module), [`TracedT`] any `ModuleT`, [`Op`] any other code. Their spans
//!   have the name, the path in the model, shapes, element types, device, parameters, and FLOPs as counted by
//!   [`flops`].
//! - [`Profiled`] wraps an optimizer and adds the spans `backward` and `optimizer`. [`backward`] is for loops that call
//!   `Optimizer::step` themselves.
//! - [`data`] wraps an iterator over batches.
//! - [`kernel_op`] groups the table of kernels by Candle's operations.
//!
//! # Models of candle-transformers
//!
//! These have spans of their own at level TRACE, which are created with the model and entered again in every pass.
//! Build the model after the subscriber is set, and the spans are in the trace, whatever the schedule did in between.
//!
//! A global filter applies to all layers: under `EnvFilter::new("info")` no layer sees TRACE spans. Give the filter to
//! the layer that prints, `fmt::layer().with_filter(EnvFilter::from_default_env())`, or add `candle_transformers=trace`
//! to it. The spans of this crate have level INFO.
//!
//! # Devices
//!
//! On CUDA devices kernspan records GPU activity. That needs Candle's feature `cuda`; this crate has no features.
//! Candle launches kernels on the calling thread and allocates memory for each operation, so kernels and memory are
//! attributed to spans exactly.
//!
//! On the CPU and on Metal there are spans with all their fields, and the report says that there is no NVIDIA GPU.
//! Metal runs kernels after the spans that requested them, so there the duration of a span is the time to submit the
//! work. (Metal is untested.)

mod cost;
mod data;
pub mod flops;
mod forward_log;
mod kernel;
mod layer_cost;
pub mod nn;
mod op;
mod optimizer;
mod parameters;
mod signature;
mod traced;

pub use self::{
    data::{Data, data},
    kernel::kernel_op,
    op::Op,
    optimizer::{Profiled, backward},
    parameters::Parameters,
    traced::{Traced, TracedT},
};

/// Compiles the example of the README as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Runs the example of what each line records.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/candle.md")]
struct Lines;
