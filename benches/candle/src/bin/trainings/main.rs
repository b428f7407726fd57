//! Candle trainings with a planted fault and its fix, to test findings with: see `benches/runner`.

mod case;
mod compute_cases;
mod copy_cases;
mod fused_cases;
mod host_cases;
mod input_cases;
mod models;
mod recurrent_cases;
mod sync_cases;
mod transformer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    trainings_runner::run(case::CASES)
}
