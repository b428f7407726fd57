//! Bindings to NVIDIA's CUPTI that are loaded at run time: the activity API, the callback API and PM
//! sampling of `libcupti`.
//!
//! A program built with this crate needs no CUDA toolkit, header or linker flag, runs on machines without a GPU, and
//! works with every CUPTI from CUDA 12.0 to 13.4.
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
//! # One binary for all releases
//!
//! - Functions are looked up by name. Calling one that a release does not have returns [`Error::Missing`]: 12.0 to 12.4
//!   lack [`Cupti::activity_enable_driver_api`] and [`Cupti::activity_enable_runtime_api`].
//! - Kinds, result codes and callback ids are `u32`, never Rust enums, because a release may send unknown values.
//! - Records are *prefix structs* such as [`ActivityKernel`]: the leading fields that have the same offsets in all
//!   these releases. NVIDIA only appends fields. The offsets are asserted at compile time and checked against NVIDIA's
//!   headers by this crate's tests. Step from record to record with [`Cupti::records`], never with `size_of`.
//!
//! # Safety
//!
//! A [`Driver`] and a [`Cupti`] exist only if their libraries were loaded and answered. Methods that take numbers are
//! safe, and return an [`Error`] with the name of the function and its code. Methods that take a pointer or a callback
//! are `unsafe` and document their requirements. Each method has its C name as a search alias.

#![cfg(unix)]

mod activity;
mod callback;
mod constants;
mod cupti;
mod driver;
mod error;
mod functions;
mod layout;
mod load;
mod nvml;
mod pm_config;
mod pm_params;
mod pm_sampler;
mod records;
mod search_paths;

pub use self::{
    activity::{
        ActivityApi, ActivityKernel, ActivityMemcpy, ActivityMemcpyPtoP, ActivityMemset, ActivityOverhead,
        ActivitySynchronization, Prefix, read,
    },
    callback::{
        BufferCompleted, BufferRequested, Callback, CallbackData, MemAllocParams, MemAllocPitchParams, MemFreeParams,
        MemcpyToDeviceParams, Subscriber,
    },
    constants::{
        attribute, cbid, copy_kind, domain, flush, kind, memory_kind, object_kind, overhead_kind, result, site,
        sync_type, thread_id_type,
    },
    cupti::Cupti,
    driver::{Context, Device, Driver},
    error::{Error, LoadError},
    nvml::{Nvml, NvmlDevice},
    pm_config::{PmConfig, PmDevice},
    pm_sampler::{Decoded, PmSampler},
    records::Records,
};

/// Compiles the examples of the README as doctests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
