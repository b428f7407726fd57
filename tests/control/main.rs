//! Tests of programs that are asked from outside while they run, through the real socket and real signals.

#![cfg(all(feature = "control", feature = "read", unix))]

mod clients;
mod ending;
mod requests;
mod signal;
mod training;

#[path = "../support/mod.rs"]
mod support;
