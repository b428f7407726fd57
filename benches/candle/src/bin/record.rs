//! Records the fixture that the tests of `kernspan-candle` replay: `record FILE` trains a small model on a GPU and
//! writes CUPTI's records to the file.

use candle_bench::{Size, Training};
use candle_core::{Device, Tensor};
use kernspan::{Activity, Profiler, Schedule};
use std::path::{Path, PathBuf};
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Some(file) = std::env::args().nth(1) else { return Err("usage: record FILE".into()) };
    let folder = PathBuf::from(format!("{file}.parts"));
    let (layer, profiler) = Profiler::builder()
        .activities([Activity::Host, Activity::Kernels, Activity::Copies, Activity::Memory])
        .schedule(Schedule::new().wait(2).warmup(1).active(2).repeat(1))
        .raw_to_dir(&folder)
        .build()?;
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let device = Device::new_cuda(0)?;
    let mut training = Training::traced(Size { width: 64, layers: 2, batch: 16 }, &device)?;
    for step in 0..6_u32 {
        let load = || Tensor::from_vec(vec![step; 16], 16, &device);
        let batch = kernspan_candle::data(std::iter::once_with(load)).next().ok_or("no batch")?;
        training.step_in_spans()?;
        // This copy is in no span, so that the fixture has unattributed work, too.
        assert_eq!(batch?.to_vec1::<u32>()?, [step; 16]);
        profiler.step();
    }
    let report = profiler.finish()?;
    println!("{report}");
    let [recorded] = report.files() else { return Err("not one window".into()) };
    std::fs::rename(recorded, Path::new(&file))?;
    std::fs::remove_dir(&folder)?;
    Ok(())
}
