//! Sampling with the kernel's `perf_event_open`, one event per thread.
//!
//! [`sys`] opens events and reads their rings, [`records`] decodes them, [`thread_events`] turns those of a thread into
//! samples and waits, [`unwind`] follows stacks, and [`capture`] is the thread that runs all of this. Later,
//! [`symbols`] finds names and lines.

mod capture;
mod clocks;
mod modules;
#[cfg(all(test, target_arch = "x86_64"))]
mod recorded;
mod records;
mod refusal;
mod stacks;
mod symbols;
mod sys;
mod thread_events;
mod unwind;

pub(crate) use self::{capture::Sampler, stacks::SampledStacks, symbols::Symbols};
