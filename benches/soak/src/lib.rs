//! A training with many recorded windows close together, and a check of each window against an independent count.
//!
//! The programs `soak` of `benches/gpu`, `benches/candle` and `benches/burn` each bring a [`Training`];
//! `benches/soak.sh` runs them with many plans. The training neither sleeps nor waits for the GPU, so launches continue
//! while recording is switched on and off.

mod check;
mod count;
mod plan;
mod requests;
mod run;
mod stacks;
mod table;
mod training;

pub use self::{
    plan::Plan,
    run::run,
    stacks::{Watchdog, stacks_of},
    training::Training,
};
