//! Tests of the memory limit: the peak memory of whole processes stays within the promise of `memory_limit_bytes`.

#![cfg(target_os = "linux")]

#[path = "../support/mod.rs"]
mod support;

mod exporters;
mod floods;
mod process;
mod short_lived;
