//! The recorded window of a training.

use crate::case::{Case, Framework, Setup, Variant};
use kernspan::{Chrome, Profiler, Schedule};
use std::{
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

/// Steps that the schedule leaves out, those in which it warms up, and those that it records. Five steps keep the files
/// below 150 KB or so.
const SCHEDULE: [u64; 3] = [20, 2, 5];
/// Windows that are recorded, of which the one whose steps take the median time is kept: the host is slow for a second
/// or so now and then, which the times without a profiler are medians over, too.
const WINDOWS: usize = 3;
/// Steps after the window, so that its last one is followed by another.
const AFTER: u64 = 3;

/// The size of a recording, of all windows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recorded {
    /// The number of steps.
    pub(crate) steps: u64,
    /// The number of kernels.
    pub(crate) kernels: u64,
    /// The size of the file that is kept.
    #[allow(dead_code, reason = "printed with the rest")]
    bytes: u64,
}

/// Records windows of a training, and keeps one in a file. The model is made after the subscriber is set.
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
        .schedule(Schedule::new().wait(wait).warmup(warmup).active(active).repeat(WINDOWS as u64))
        .export(Chrome::to_dir(&parts).gzip(true))
        .detach_after(Duration::ZERO)
        .build()?;
    if !setup.tiny && !profiler.gpu().is_available() {
        return Err(profiler.gpu().to_string().into());
    }
    let subscriber = tracing_subscriber::registry().with(layer);
    let times = tracing::subscriber::with_default(subscriber, || steps(case, setup, variant, &profiler))?;
    let report = profiler.finish()?;
    if report.files().len() != WINDOWS {
        return Err(format!("{} files instead of {WINDOWS}", report.files().len()).into());
    }
    let mut windows: Vec<_> = times.into_iter().zip(report.files()).collect();
    windows.sort();
    fs::rename(windows[WINDOWS / 2].1, file)?;
    fs::remove_dir_all(&parts)?;
    // Findings do not depend on one or two of thousands of records.
    if !report.losses().is_empty() {
        eprintln!("{}, {}: {}", case.name, variant.name(), report.losses());
    }
    let rows = report.kernels().limit(usize::MAX).rows();
    // Copies and fills have no registers.
    let kernels = rows.iter().filter(|row| row.registers.is_some()).map(|row| row.calls).sum();
    Ok(Recorded { steps: report.steps().count(), kernels, bytes: fs::metadata(file)?.len() })
}

/// Makes a training, runs the steps of the schedule, and returns the time that the recorded steps of each window took.
fn steps<F: Framework>(
    case: &Case<F>,
    setup: &Setup<F>,
    variant: Variant,
    profiler: &Profiler,
) -> Result<[Duration; WINDOWS], Box<dyn Error>> {
    F::synchronize(&setup.device).map_err(Into::into)?;
    let _attached = F::attach(profiler, &setup.device)?;
    let mut step = (case.make)(setup, variant).map_err(Into::into)?;
    for _ in 0..if setup.tiny { 1 } else { F::WARM_UP } {
        step().map_err(Into::into)?;
    }
    let mut times = [Duration::ZERO; WINDOWS];
    for time in &mut times {
        for phase in SCHEDULE {
            let start = Instant::now();
            for _ in 0..phase {
                step().map_err(Into::into)?;
                profiler.step();
            }
            // The last phase is the one that is recorded.
            *time = start.elapsed();
        }
    }
    for _ in 0..AFTER {
        step().map_err(Into::into)?;
        profiler.step();
    }
    F::synchronize(&setup.device).map_err(Into::into)?;
    Ok(times)
}
