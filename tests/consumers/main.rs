//! Tests in which third-party tools read exported files: Perfetto, HolisticTraceAnalysis, TensorBoard with its
//! plugins, inferno. They must see what is in the trace.
//!
//! Most of them are written in Python, and run in environments that these tests make: see `support/downloads.rs`.
//! Without Python the tests print a message and pass, unless `CI=true`.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod gpu_compute;
#[cfg(all(feature = "cuda", feature = "read", target_os = "linux"))]
mod hta;
#[cfg(all(feature = "cuda", feature = "read", target_os = "linux"))]
mod hta_model;
mod scalars;
#[cfg(target_os = "linux")]
mod scalars_mishaps;
#[cfg(all(feature = "gzip", feature = "sample"))]
mod stacks;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod torch;
#[cfg(feature = "sample")]
mod torch_samples;
mod trace_files;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod xprof;
#[cfg(feature = "sample")]
mod xprof_samples;
