//! kernspan for [Burn](https://burn.dev): attributes each GPU kernel to the span that requested it, with the operations
//! fused into it, although Burn fuses operations lazily and launches every kernel on its own threads.
//!
//! Install the layer as usual, and [`attach`] the profiler to the device:
//!
//! ```no_run
//! use burn::tensor::Device;
//! use kernspan::{Chrome, Profiler, Schedule};
//! use tracing_subscriber::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(5).warmup(1).active(3))
//!     .export(Chrome::to_dir("traces"))
//!     .build()?;
//! tracing_subscriber::registry().with(layer).init();
//!
//! let device = Device::default().autodiff();
//! let _attached = kernspan_burn::attach(&profiler, &device)?;
//! for _step in 0..10 {
//!     tracing::info_span!("train_step").in_scope(|| { /* forward, backward, optimizer */ });
//!     profiler.step();
//! }
//! profiler.finish_and_print()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Contents
//!
//! - [`attach`] attributes a device's work to spans. [`Attached::coverage`] lists the activity that is recorded.
//! - `Profiled`, `backward` (feature `optim`) and [`data`] turn the parts of your own training loop into spans.
//! - `training` and `validation` (feature `train`) turn the iterations of a `DataLoader` into spans, also in
//!   burn-train's loop.
//! - [`modules`] lists the modules of a model with their parameters.
//! - [`Description`], [`DescriptionCache`], [`flops()`] and [`LiveMemory`] describe Burn's operations, for your own
//!   tools.

mod attach;
mod coverage;
mod data;
#[cfg(feature = "cubecl")]
mod device_thread;
#[cfg(all(feature = "cubecl", feature = "fusion"))]
mod fusion_thread;
mod memory;
mod modules;
#[cfg(feature = "cubecl")]
mod observation;
mod operation;
#[cfg(feature = "cubecl")]
mod origin_forwarder;
#[cfg(feature = "cubecl")]
mod pool;
#[cfg(feature = "optim")]
mod profiled;
#[cfg(feature = "cubecl")]
mod queue;
#[cfg(feature = "cubecl")]
mod stream_origins;
#[cfg(feature = "train")]
mod train;

#[cfg(feature = "optim")]
pub use self::profiled::{Profiled, backward};
#[cfg(feature = "train")]
pub use self::train::{training, validation};
pub use self::{
    attach::{Attached, attach},
    coverage::{AttachError, Coverage},
    data::{Data, data},
    memory::LiveMemory,
    modules::{ModuleSummary, Modules, modules},
    operation::{Description, DescriptionCache, flops},
};

/// Compiles the example of this crate's README as a doctest.
#[cfg(all(doctest, feature = "train"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the examples of the guide as doctests. They are here because they use Candle and Burn.
#[cfg(all(doctest, feature = "train"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Guide;
