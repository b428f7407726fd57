//! Records many windows close together in a Candle training: `soak [wait=15] [windows=12] …`, see [`soak::Plan`].

use candle_bench::{Size, Training};
use candle_core::Device;
use candle_nn::AdamW;
use kernspan_candle::Profiled;
use soak::Plan;
use std::process::ExitCode;

fn main() -> ExitCode {
    let done = Plan::from_args().and_then(|plan| soak::run("Candle", &plan, Mlp::new));
    done.map_or_else(
        |problem| {
            println!("{problem}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

/// A training on its own stream.
struct Mlp {
    device: Device,
    training: Training<Profiled<AdamW>>,
}

impl Mlp {
    fn new() -> Self {
        let device = Device::new_cuda_with_stream(0).expect("a CUDA device");
        let training = Training::traced(Size::FULL, &device).expect("a model");
        Self { device, training }
    }
}

impl soak::Training for Mlp {
    fn step(&mut self) {
        self.training.step_in_spans().expect("a step");
    }

    fn synchronize(&mut self) {
        self.device.synchronize().expect("the device");
    }
}
