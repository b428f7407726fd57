//! Tests on machines without a GPU: the messages there, and recording with a fake driver and a fake CUPTI.
//!
//! Without the feature `cuda`, only `no_gpu` is left: `cargo test --no-default-features --test gpu`.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod counters;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod fake;
mod no_gpu;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod races;
#[cfg(all(feature = "cuda", feature = "serving", target_os = "linux"))]
mod requests;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod snapshots;
#[cfg(all(feature = "cuda", feature = "vitals", target_os = "linux"))]
mod stuck;
