//! Candle, as the program runs trainings with it.

use candle_core::{Device, Result, cuda::set_gemm_reduced_precision_f32};
use kernspan::Profiler;
use std::error::Error;
use trainings_runner::{Framework, Variant};

/// Candle, on the first CUDA device.
#[derive(Clone, Debug)]
pub(crate) struct Candle;

impl Framework for Candle {
    const NAME: &'static str = "candle";
    const WARM_UP: usize = 20;

    type Device = Device;
    type Error = candle_core::Error;
    type Attached = ();

    fn device(tiny: bool) -> std::result::Result<Device, Box<dyn Error>> {
        let device = Device::cuda_if_available(0)?;
        if device.is_cpu() && !tiny {
            return Err("there is no GPU: only `--tiny` runs on the CPU".into());
        }
        Ok(device)
    }

    fn synchronize(device: &Device) -> Result<()> {
        device.synchronize()
    }

    /// The profiler needs no help to observe Candle.
    fn attach(_: &Profiler, _: &Device) -> std::result::Result<(), Box<dyn Error>> {
        Ok(())
    }

    /// Lets products of f32 matrices use TF32, except where that is the fault: it would be the first finding in every
    /// GPU-bound case.
    fn configure(case: &Case, variant: Variant) {
        set_gemm_reduced_precision_f32(case.kind != "no-tensor-cores" || variant == Variant::Fixed);
    }
}

pub(crate) type Setup = trainings_runner::Setup<Candle>;
pub(crate) type Step = trainings_runner::Step<Candle>;
pub(crate) type Case = trainings_runner::Case<Candle>;
