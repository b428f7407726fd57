//! Programs of others read what is exported: Perfetto, HolisticTraceAnalysis, TensorBoard with its plugins, inferno.
//! What they see must be what the trace says.
//!
//! Most of them are in Python, in environments that these tests make: see `support/downloads.rs`. Without Python the
//! tests say so and pass, but not where `CI=true`.

#[path = "../support/mod.rs"]
mod support;

mod scalars;
#[cfg(target_os = "linux")]
mod scalars_mishaps;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod torch;
mod trace_files;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod xprof;
