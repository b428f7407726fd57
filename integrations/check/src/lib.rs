//! Regression checks for [kernspan]: has a training step become slower, or does it launch more kernels, copy more or
//! allocate more?
//!
//! A [`Baseline`] holds the statistics of one or several runs, as a small JSON file. A [`Recorder`] creates one from
//! the running program, and [`check`](check()) compares the two:
//!
//! ```
//! use kernspan::{Profiler, Schedule};
//! use kernspan_check::{Baseline, Recorder};
//! use tracing_subscriber::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("baseline.json");
//! let recorder = Recorder::new();
//! let (layer, profiler) = Profiler::builder()
//!     .schedule(Schedule::new().wait(2).active(10).repeat(1))
//!     .export(recorder.clone())
//!     .build()?;
//! tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
//!     for _ in 0..12 {
//!         tracing::info_span!("train_step").in_scope(|| ());
//!         profiler.step();
//!     }
//! });
//! profiler.finish()?;
//!
//! let run = recorder.baseline();
//! # let accepted = true;
//! if accepted {
//!     std::fs::write(&file, run.to_json())?; // commit this file
//! }
//! let stored = Baseline::from_json(&std::fs::read(&file)?)?;
//! let check = kernspan_check::check(&run, &stored);
//! assert!(check.is_ok(), "{check}");
//! # Ok(())
//! # }
//! ```
//!
//! The command line does the same with files: `kernspan baseline`, `kernspan check` and `kernspan diff`.
//!
//! # How it works
//!
//! 1. [`baseline`]: each window is sampled: the time and the counts of each path of spans in each step.
//! 2. [`comparison`]: the paths of both sides are aligned, the machine's drift is removed, and each change gets an
//!    interval of 99 %.
//! 3. [`Check`]: each change is compared with its [threshold](Thresholds). Counts are compared exactly.
//!
//! `docs/check.md` in kernspan's repository has the details, and explains how to get conclusive checks.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

pub mod baseline;
mod check;
pub mod comparison;
mod counts;
mod recorder;
#[cfg(test)]
mod sample;
mod span_paths;
mod step_samples;

pub use self::{
    baseline::{Baseline, BaselineError},
    check::{Check, CheckVerdict, Metric, Problem, Threshold, ThresholdError, Thresholds, check},
    comparison::{Comparison, text},
    counts::{CountKind, CountRange},
    recorder::Recorder,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
