//! Helpers that the integration tests share.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its own part")]

pub mod awkward;
pub mod child;
pub mod cupti;
pub mod downloads;
mod patience;
mod profiled;
pub mod readers;
pub mod steps;
pub mod tensorboard;
mod unchecked;
mod wheels;

pub use self::{
    patience::{PATIENCE, eventually},
    profiled::{names, profiled, span, trace_of, tree},
    unchecked::Unchecked,
    wheels::missing,
};

/// Returns the trace of a window that was recorded on an H200.
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub fn recorded(name: &str) -> kernspan::Trace {
    let path = format!("{}/tests/fixtures/gpu/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
    kernspan::replay(std::fs::File::open(path).unwrap()).unwrap()
}
