//! kernspan as NCCL's profiler plugin: exact collectives in traces, and hangs with the missing ranks named.
//!
//! ```no_run
//! use kernspan::{Chrome, Profiler};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (layer, profiler) = Profiler::builder().export(Chrome::to_dir("runs/ddp")).build()?;
//! # drop(layer);
//! let nccl = kernspan_nccl::install(&profiler)?; // Before the first communicator is made.
//! // … train …
//! drop(nccl);
//! profiler.finish_and_print()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Collectives
//!
//! NCCL tells its profiler plugin of each collective on the thread that has just launched the kernel, so that kernspan
//! joins both exactly, without comparing clocks or names. The kernel's [`Work::collective`] then has the communicator,
//! rank, function, sequence number, type, algorithm, protocol and channels; Chrome traces have them as arguments. So do
//! sends and receives. Small collectives of one group call that share a kernel are [merged].
//!
//! A collective in a CUDA graph is launched with the graph, and NCCL tells of it on another thread: its kernel has no
//! collective.
//!
//! # Hangs
//!
//! The last 64 calls of each communicator are kept, with how far each has come: entered by the program, launched,
//! started on the GPU, finished. With a folder, each rank writes a small file there when a step takes too long, on a
//! signal, and at the end, also by `exit` or `SIGTERM`; `kernspan ranks hang FOLDER` then names the ranks that are
//! missing from a collective, and the span that each of them is in:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let (layer, profiler) = kernspan::Profiler::builder().build()?;
//! use std::time::Duration;
//!
//! let nccl = kernspan_nccl::Nccl::new().hangs_to_dir("runs/ddp").slow_step(Duration::from_secs(120));
//! let nccl = nccl.install(&profiler)?;
//! # Ok(())
//! # }
//! ```
//!
//! # How NCCL finds the plugin
//!
//! NCCL opens `libnccl-profiler.so` when the first communicator is made. [`install`] loads a library of that name, a
//! few hundred bytes in memory that point to functions of this program, so that the dynamic linker returns that one.
//! Without [`install`] nothing is loaded. If `NCCL_PROFILER_PLUGIN` is set, NCCL opens what it names instead, and
//! [`install`] returns an error.
//!
//! The interface is that of NCCL 2.26 (version 4), 2.28 (5) and 2.29 (6); NCCL asks for the newest it knows. The
//! sources of 2.26.2, 2.27.7, 2.28.9, 2.29.7 and 2.30.7 were read.
//!
//! [`Work::collective`]: kernspan::trace::Work::collective
//! [merged]: kernspan::trace::Collective::merged

// There is no NCCL for other systems.
#![cfg(unix)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "only Linux has the library that calls this")
)]

mod abi;
mod communicators;
mod exit;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod library;
mod plugin;
mod ring;
mod ring_file;
mod watch;

pub use self::{
    communicators::Counts,
    plugin::{Error, Nccl, Plugin, install},
};
