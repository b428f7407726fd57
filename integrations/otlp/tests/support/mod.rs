//! The machinery behind tests that read as sentences. The core's tests have some of it, too.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test file uses its own part")]

#[path = "../../../../tests/support/child.rs"]
pub mod child;
pub mod collectors;
pub mod dashboard;
#[path = "../../../../tests/support/patience.rs"]
mod patience;
#[path = "../../../../tests/support/profiled.rs"]
mod profiled;
pub mod server;
pub mod spans;
#[path = "../../../../tests/support/steps.rs"]
pub mod steps;

pub use self::{
    patience::{PATIENCE, eventually},
    profiled::{profiled, span, tree},
};
