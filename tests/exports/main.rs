//! Exported files that nobody but these tests reads: golden files, recorded windows, and windows that are spoilt.

#[path = "../support/mod.rs"]
mod support;

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod fuzz;
mod golden;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod replay;
