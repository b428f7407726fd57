//! Burn trainings with a planted fault and its fix, to test findings with: see `benches/runner`.
//!
//! Most cases have matrices of the same sizes, because Burn tunes its kernels for each size, for seconds.

mod calibration;
mod cases;
mod clicks;
mod copy_cases;
mod encoder;
mod host_cases;
mod layer_cases;
mod loader;
mod measure_cases;
mod mlp_cases;
mod models;
mod sketches;
mod term_cases;
mod text;

fn main() -> cases::Result<()> {
    trainings_runner::run(cases::CASES)
}
