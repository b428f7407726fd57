//! NVIDIA's CUPTI: what happens on a GPU and in the CUDA API, seen from inside the process that uses them.
//!
//! These are bindings to the activity and the callback API of `libcupti`, **loaded at run time**: a program built with them needs
//! no CUDA toolkit, header or linker flag, runs on machines without a GPU, and works with every CUPTI from CUDA 12.0 to 13.4.
//!
//! ```
//! use cupti_sys::{Cupti, Driver, kind};
//!
//! // The order matters: no function of CUPTI may be called before the driver is known to work.
//! let cupti = Driver::load().map_err(|error| error.to_string()).and_then(|driver| {
//!     Cupti::find(driver).map_err(|error| error.to_string())
//! });
//! match cupti {
//!     Ok(cupti) => {
//!         println!("CUPTI {} from {}", cupti.version(), cupti.path().display());
//!         cupti.activity_enable(kind::CONCURRENT_KERNEL)?;
//!         cupti.activity_disable(kind::CONCURRENT_KERNEL)?;
//!     }
//!     Err(why) => println!("no GPU profiling here: {why}"),
//! }
//! # Ok::<(), cupti_sys::Error>(())
//! ```
//!
//! # How it stays one binary
//!
//! - Functions are looked up by name. One that a release does not have is [`Error::Missing`] when it is called, not
//!   before: 12.0 to 12.4 lack [`Cupti::activity_enable_driver_api`] and its sibling of the runtime.
//! - Kinds, result codes and callback ids are `u32`, never Rust enums: a release may send values that nobody knew of.
//! - Records are *prefix structs* ([`ActivityKernel`] and its kin): the fields that lie at the same place in all those releases,
//!   and none after. NVIDIA only ever appends. Offsets are asserted at compile time and checked against NVIDIA's own headers by
//!   this crate's tests. Step from record to record with [`Cupti::records`], never with `size_of`.
//!
//! # Storeys
//!
//! [`Driver`] and [`Cupti`] are proofs that the libraries are there and answer; methods that can break nothing are safe, and
//! return [`Error`] with the name of the function and its code. What takes a pointer or a callback is `unsafe` and says what it
//! asks for. C names find their methods: each has its name as an alias.

#![cfg(unix)]

mod activity;
mod callback;
mod constants;
mod cupti;
mod driver;
mod error;
mod layout;
mod load;
mod places;

pub use self::{
    activity::{
        ActivityApi, ActivityKernel, ActivityMemcpy, ActivityMemcpyPtoP, ActivityMemset, ActivityOverhead,
        ActivitySynchronization, Prefix, Records, read,
    },
    callback::{CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams, MemcpyToDeviceParams},
    constants::{
        attribute, cbid, copy_kind, domain, flush, kind, memory_kind, object_kind, overhead_kind, result, site,
        sync_type, thread_id_type,
    },
    cupti::{BufferCompleted, BufferRequested, Callback, Cupti, Subscriber},
    driver::{Context, Device, Driver},
    error::{Error, LoadError},
};

/// The examples of the README, which must compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
