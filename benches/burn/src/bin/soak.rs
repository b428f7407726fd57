//! Records many windows close together in a Burn training: `soak [wait=15] [windows=12] …`, see [`soak::Plan`].

use burn::tensor::Device;
use burn_bench::{Size, gpu, training};
use kernspan::Profiler;
use soak::{Plan, Training};
use std::{any::Any, process::ExitCode};

fn main() -> ExitCode {
    let device = match gpu() {
        Ok(device) => device,
        Err(problem) => {
            println!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    let make = || {
        let mut mlp = Mlp { training: training(Size::FULL, &device), device: device.clone() };
        // The first steps compile and tune kernels.
        (0..40).for_each(|_| mlp.step());
        mlp.synchronize();
        mlp
    };
    let done = Plan::from_args().and_then(|plan| soak::run("Burn", &plan, make));
    done.map_or_else(
        |problem| {
            println!("{problem}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}

struct Mlp {
    training: burn_bench::Training,
    device: Device,
}

impl Training for Mlp {
    fn step(&mut self) {
        self.training.step_in_spans();
    }

    fn synchronize(&mut self) {
        self.device.sync().expect("the device");
    }

    fn attach(&self, profiler: &Profiler) -> Box<dyn Any> {
        Box::new(kernspan_burn::attach(profiler, &self.device).expect("a device to attach to"))
    }

    /// Returns false, because operations are queued for a thread of Burn, which launches them later.
    fn is_eager(&self) -> bool {
        false
    }
}
