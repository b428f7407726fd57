//! kernspan for [Burn](https://burn.dev): see which span, operation and module each GPU kernel belongs to, although Burn fuses operations
//! lazily and launches every kernel on threads of its own.
//!
//! Install the layer as ever, and [`attach`] it to the device:
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
//! println!("{}", profiler.finish()?);
//! # Ok(())
//! # }
//! ```

mod attach;
mod data;
#[cfg(feature = "cubecl")]
mod device_thread;
#[cfg(feature = "cubecl")]
mod follower;
#[cfg(all(feature = "cubecl", feature = "fusion"))]
mod fusion;
#[cfg(feature = "cubecl")]
mod launches;
mod memory;
mod modules;
#[cfg(feature = "cubecl")]
mod observed;
mod operation;
#[cfg(feature = "optim")]
mod optimizer;
#[cfg(feature = "optim")]
mod profiled;
#[cfg(feature = "cubecl")]
mod queue;
#[cfg(feature = "cubecl")]
mod streams;
#[cfg(feature = "train")]
mod train;

#[cfg(feature = "train")]
pub use self::train::{training, validation};
pub use self::{
    attach::{AttachError, Attached, Sight, attach},
    data::{Data, data},
    memory::LiveMemory,
    modules::{ModuleSummary, Modules, modules},
    operation::{Description, Descriptions, flops},
};
#[cfg(feature = "optim")]
pub use self::{optimizer::backward, profiled::Profiled};

/// The examples of the guide, which must compile: it has Candle and Burn in it.
#[cfg(all(doctest, feature = "train"))]
#[doc = include_str!("../../../docs/guide.md")]
struct Readme;
