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
//!
//! `trainings --stress FOLDER [CASE...]` runs the repaired variant of each case for some seconds on a machine that is
//! slowed down for a part of them: by busy threads, by a busy disk, by another training on the GPU. It prints what each
//! cost, and what the findings about the machine say. `stress.jsonl` in the folder has a line for each. `--stress=gpu`
//! runs one kind only. With `--even` or `--odd` only every second case runs, so that rules can be tuned on one
//! half and judged on the other.

mod case;
mod program;
mod random;
mod recording;
mod row;
mod stress;
mod stressor;
mod timing;
pub mod workers;

pub use self::{
    case::{Calibrate, Case, Framework, Make, Setup, Step, Variant},
    program::run,
    random::Random,
    timing::mean,
};
