//! Records the fixtures that the tests of `kernspan-burn` replay: `record FILE` trains a small model on a GPU and
//! writes CUPTI's records, the origins from Burn's queues and the reports of Burn's observers to two files. The first
//! has the first step, in which Burn compiles and tunes; the second has a later step.

use burn::tensor::{Tensor, TensorData};
use burn_bench::{Size, gpu, training};
use kernspan::{Activity, Profiler, Schedule};
use std::path::{Path, PathBuf};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(file) = std::env::args().nth(1) else { return Err("usage: record FILE".into()) };
    let folder = PathBuf::from(format!("{file}.parts"));
    let device = gpu()?;
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .schedule(Schedule::new().wait(1).active(1).repeat(2))
        .raw_to_dir(&folder)
        .build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let attached = kernspan_burn::attach(&profiler, &device)?;
    println!("{}", attached.coverage());
    // Burn measures the speed of the device once, with tens of thousands of launches; these must not be in the fixture.
    let small: Tensor<2> = Tensor::ones([8, 8], &device);
    small.clone().matmul(small).into_data();
    let mut training = training(Size { width: 64, layers: 2, batch: 16 }, &device);
    profiler.step();
    for step in 0..5_u32 {
        let batch: Tensor<1> = tracing::info_span!("data")
            .in_scope(|| Tensor::from_data(TensorData::new(vec![step as f32; 16], [16]), &device));
        training.step_in_spans();
        assert_eq!(batch.sum().into_scalar::<f32>(), 16.0 * step as f32);
        profiler.step();
    }
    drop(attached);
    let report = profiler.finish()?;
    println!("{report}");
    for (recorded, name) in report.files().iter().zip(["first", "later"]) {
        std::fs::rename(recorded, Path::new(&format!("{file}-{name}.kernspan")))?;
    }
    std::fs::remove_dir(&folder)?;
    Ok(())
}
