//! A program that times and records trainings with a planted fault and its fix, to test findings with.
//!
//! The programs `trainings` of `benches/candle` and `benches/burn` each bring a [`Framework`] and a table of [`Case`]s,
//! and call [`run`].
//!
//! `trainings FOLDER [CASE...]` runs each case, or only those that are named, on the first GPU. It first times both
//! variants of a case without a subscriber or profiler, in turns; when all cases are timed, it records a window of each
//! variant to `FOLDER/FRAMEWORK-CASE-VARIANT.json.gz`. Timing everything first keeps CUPTI out of the timed steps.
//! `FRAMEWORK.jsonl` in the folder has one line for each variant; it is rewritten after each case, so that a crash
//! loses only the rest.
//!
//! With `--tiny`, the models are small and few steps run, also on the CPU: a test that no case fails. `--time` and
//! `--record` run only one of the two parts.

mod case;
mod program;
mod random;
mod recording;
mod row;
mod timing;
pub mod workers;

pub use self::{
    case::{Calibrate, Case, Framework, Make, Setup, Step, Variant},
    program::run,
    random::Random,
    timing::mean,
};
