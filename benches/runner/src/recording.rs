//! The recorded window of a training.

use crate::case::{Case, Framework, Setup, Variant};
use kernspan::{Chrome, Profiler, Schedule};
use std::{error::Error, fs, path::Path, time::Duration};
use tracing_subscriber::prelude::*;

/// Steps that the schedule leaves out, those in which it warms up, and those that it records. Five steps keep the files
/// below 150 KB or so.
const SCHEDULE: [u64; 3] = [3, 2, 5];
/// Steps after the window, so that its last one is followed by another.
const AFTER: u64 = 3;

/// What was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// The number of steps.
    pub(crate) steps: u64,
    /// The number of kernels.
    pub(crate) kernels: u64,
    /// The size of the file.
    #[allow(dead_code, reason = "printed with the rest")]
    bytes: u64,
}

/// Records a window of a training to a file. The model is made after the subscriber is set.
pub(crate) fn record<F: Framework>(
    case: &Case<F>,
    setup: &Setup<F>,
    variant: Variant,
    file: &Path,
) -> Result<Recorded, Box<dyn Error>> {
    F::configure(case, variant);
    let parts = file.with_extension("parts");
    let [wait, warmup, active] = SCHEDULE;
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::new().wait(wait).warmup(warmup).active(active).repeat(1))
        .export(Chrome::to_dir(&parts).gzip(true))
        .detach_after(Duration::ZERO)
        .build()?;
    if !setup.tiny && !profiler.gpu().is_available() {
        return Err(profiler.gpu().to_string().into());
    }
    let subscriber = tracing_subscriber::registry().with(layer);
    tracing::subscriber::with_default(subscriber, || steps(case, setup, variant, &profiler))?;
    let report = profiler.finish()?;
    let [recorded] = report.files() else {
        return Err(format!("{} files instead of one", report.files().len()).into());
    };
    fs::rename(recorded, file)?;
    fs::remove_dir(&parts)?;
    if !report.losses().is_empty() {
        return Err(report.losses().to_string().into());
    }
    let rows = report.kernels().limit(usize::MAX).rows();
    // Copies and fills have no registers.
    let kernels = rows.iter().filter(|row| row.registers.is_some()).map(|row| row.calls).sum();
    Ok(Recorded { steps: report.steps().count(), kernels, bytes: fs::metadata(file)?.len() })
}

/// Makes a training, and runs the steps of the schedule.
fn steps<F: Framework>(
    case: &Case<F>,
    setup: &Setup<F>,
    variant: Variant,
    profiler: &Profiler,
) -> Result<(), Box<dyn Error>> {
    F::synchronize(&setup.device).map_err(Into::into)?;
    let _attached = F::attach(profiler, &setup.device)?;
    let mut step = (case.make)(setup, variant).map_err(Into::into)?;
    for _ in 0..if setup.tiny { 1 } else { F::WARM_UP } {
        step().map_err(Into::into)?;
    }
    for _ in 0..SCHEDULE.iter().sum::<u64>() + AFTER {
        step().map_err(Into::into)?;
        profiler.step();
    }
    F::synchronize(&setup.device).map_err(Into::into)
}
