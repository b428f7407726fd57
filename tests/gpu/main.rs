//! Machines without a GPU: what is said there, and how recording goes beside a driver and a CUPTI made by a C compiler.
//!
//! Without the feature `cuda`, `no_gpu` is what is left: `cargo test --no-default-features --test gpu`.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod fake;
mod no_gpu;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod races;
