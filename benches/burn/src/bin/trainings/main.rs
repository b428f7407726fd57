//! Burn trainings with a planted fault and its fix, to test findings with: see `benches/runner`.
//!
//! Most cases have matrices of the same sizes, because Burn tunes its kernels for each size, for seconds.

mod cases;
mod copy_cases;
mod encoder;
mod host_cases;
mod loader;
mod mlp_cases;
mod models;
mod text;

fn main() -> cases::Result<()> {
    trainings_runner::run(cases::CASES)
}
