//! The application's side of NVTX 3, NVIDIA's annotations that Nsight Systems, Nsight Compute and other tools read.
//!
//! NVTX is a protocol rather than a library. A tool that wants annotations sets the variable `NVTX_INJECTION64_PATH` to
//! a library of its own. The program loads it at the first annotation, and calls its function
//! `InitializeInjectionNvtx2`, which writes the addresses of its functions into tables of the program. C and C++ do so
//! with NVIDIA's headers; this crate does the same in Rust. Without the variable nothing is loaded, and [`Domain::new`]
//! returns [`Error::NotAsked`].
//!
//! ```
//! match nvtx_sys::Domain::new(c"my program") {
//!     Ok(domain) => {
//!         let name = domain.register(c"forward");
//!         domain.push(name.into());
//!         // Kernels that are launched here are in the range "forward".
//!         domain.pop();
//!     }
//!     Err(nvtx_sys::Error::NotAsked) => {} // no tool is there
//!     Err(error) => eprintln!("{error}"),
//! }
//! ```
//!
//! The layout of tables and structs is that of NVIDIA's headers `nvtx3/nvtxDetail/nvtxTypes.h` and
//! `nvtx3/nvToolsExt.h`, version 3, which has not changed since 2019.

#![cfg(unix)]

mod domain;
mod error;
mod tables;

pub use self::{
    domain::{Domain, Message, RangeId, RegisteredString},
    error::Error,
    tables::{callback_id, export_table, module},
};
