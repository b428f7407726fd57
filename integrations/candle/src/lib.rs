//! kernspan for [Candle](candle_core): forward, backward, optimizer and data loading as spans, for each module, with shapes, FLOPs,
//! memory and every GPU kernel under the module that launched it.
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
//! let report = profiler.finish()?;
//! println!("{report}");
//! println!("{}", report.kernels().group_by(kernspan_candle::kernel_op)); // on a GPU
//! # assert_eq!(report.steps().times().len(), 3);
//! # Ok(())
//! # }
//! ```
//!
//! # What is here
//!
//! - [`nn`]: candle-nn's constructors, traced. Change the `use`, and a whole model is.
//! - [`Traced`] around any [`Module`](candle_nn::Module), [`TracedT`] around a `ModuleT`, [`Op`] around anything else: name, path in the
//!   model, shapes, element types, device, parameters, and FLOPs as [`flops`] counts them.
//! - [`Profiled`] around any optimizer: `backward` and `optimizer`; [`backward`] for loops that have their own way.
//! - [`data`] around whatever gives batches.
//! - [`kernel_op`] for a table of kernels by Candle's operations.
//!
//! # Models of candle-transformers
//!
//! They have spans of their own, at level TRACE, made with the model and entered again for ever: so build the model after the subscriber
//! is set, and they are in the trace, whatever the schedule does meanwhile. A global filter decides for all layers: under
//! `EnvFilter::new("info")` there are no TRACE spans for anybody. Give the filter to the layer that prints instead,
//! `fmt::layer().with_filter(EnvFilter::from_default_env())`, or let the filter through, with `candle_transformers=trace`. The spans of this
//! crate are at level INFO.
//!
//! # Devices
//!
//! On CUDA, GPU activity is recorded as `kernspan` says; Candle needs its feature `cuda`, this crate has none. Candle launches kernels on
//! the thread that calls it and allocates for each operation by itself, so kernels and memory are attributed to spans exactly. On the
//! CPU and with Metal there are the spans with all they say; the report says that there was no NVIDIA GPU. Metal runs kernels later
//! than the spans that asked for them, so there the time of a span is the time to ask. (With Metal it has not been tried.)

mod cost;
mod data;
pub mod flops;
mod graph;
mod kernel;
mod known;
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
