//! Candle trainings with a planted fault and its fix, to test findings with: see `benches/runner`.

mod audio;
mod bank;
mod calibration;
mod case;
mod compute_cases;
mod copy_cases;
mod distances;
mod drones;
mod fused_cases;
mod gated_cases;
mod host_cases;
mod image_cases;
mod input_cases;
mod loop_cases;
mod models;
mod molecules;
mod recommender;
mod recurrent_cases;
mod rotary;
mod sync_cases;
mod table;
mod transformer;
mod weight_cases;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    trainings_runner::run(table::CASES)
}
