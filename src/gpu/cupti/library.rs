//! The driver and CUPTI, loaded once per process.

use super::device;
use crate::trace::{Device, GpuLibrary, GpuProblem};
use cupti_sys::{Cupti, Driver, LoadError, Nvml, result};
use std::{
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::SystemTime,
};

/// NVIDIA's libraries, and the devices they see.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) driver: Driver,
    pub(super) cupti: Cupti,
    pub(super) devices: Arc<[Device]>,
    pub(super) info: GpuLibrary,
    /// NVML, if there is one, initialized until the process ends.
    pub(super) nvml: Option<Nvml>,
}

impl Library {
    /// Returns the libraries, loaded on the first call. A failure is not retried, since trying CUPTI takes a while.
    pub(super) fn of_this_process() -> Result<&'static Self, &'static GpuProblem> {
        static LIBRARY: OnceLock<Result<Library, GpuProblem>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref()
    }

    fn load() -> Result<Self, GpuProblem> {
        let driver = Driver::load().map_err(load_problem)?;
        // If a thread initializes NVML while CUPTI is attached or sets up counters, that thread leaves a mutex of the
        // driver locked, and no other can make a context any more (docs/cupti.md). So that comes first, and waits for
        // a thread in the middle of it; later calls of `nvmlInit`, by anybody, only count.
        let nvml = Nvml::load();
        let cupti = match std::env::var_os("KERNSPAN_CUPTI") {
            Some(path) => Cupti::load(driver, [PathBuf::from(path)]),
            None => Cupti::find(driver),
        };
        let cupti = cupti.map_err(load_problem)?;
        check_clock(&cupti)?;
        let info = GpuLibrary {
            path: cupti.path().display().to_string(),
            cupti_version: cupti.version(),
            driver_version: driver.version().map_err(|error| problem(&error))?,
            warning: warning(cupti.version()),
        };
        Ok(Self { driver, devices: device::devices(driver).into(), cupti, info, nvml })
    }
}

/// Returns a warning for faulty releases of CUPTI.
fn warning(version: u32) -> Option<String> {
    let of_13_2 = (130_200..130_300).contains(&version);
    of_13_2.then(|| "CUPTI of CUDA 13.2 is known to be faulty; use another release".to_owned())
}

/// Checks that CUPTI's clock is the wall clock, which spans use.
fn check_clock(cupti: &Cupti) -> Result<(), GpuProblem> {
    /// A thread may be suspended between two readings.
    const TOLERANCE: u64 = 50_000_000;
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
    let before = now();
    let theirs = cupti.timestamp().map_err(|error| problem(&error))?;
    let after = now();
    let nanos = before.saturating_sub(theirs).max(theirs.saturating_sub(after));
    if nanos > TOLERANCE { Err(GpuProblem::Clock { nanos }) } else { Ok(()) }
}

fn load_problem(error: LoadError) -> GpuProblem {
    match error {
        LoadError::NoDriver { message } => GpuProblem::NoDriver { message },
        LoadError::NoDevice => GpuProblem::NoDevice,
        LoadError::NotFound { looked } => {
            GpuProblem::NoLibrary { looked: looked.iter().map(|(path, reason)| looked_for(path, reason)).collect() }
        }
        LoadError::TooOld { version } => GpuProblem::TooOld { version },
        LoadError::Broken(error) => problem(&error),
        other => GpuProblem::Failed { call: "loading", code: 0, message: other.to_string() },
    }
}

/// Describes a path that was tried, with the loader's error. Bare names are mostly not found, so they have none.
fn looked_for(path: &Path, reason: &str) -> String {
    let path = path.display().to_string();
    let reason = reason.strip_prefix(&path).map_or(reason, |rest| rest.trim_start_matches(": "));
    if path.contains('/') { format!("{path} ({reason})") } else { path }
}

/// Returns the problem for the error of a call.
pub(super) fn problem(error: &cupti_sys::Error) -> GpuProblem {
    match error {
        cupti_sys::Error::Failed { code: result::MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, .. } => {
            GpuProblem::AnotherProfiler
        }
        cupti_sys::Error::Failed { function, code, message } => {
            GpuProblem::Failed { call: function, code: *code, message: message.clone() }
        }
        other => GpuProblem::Missing { function: other.function() },
    }
}
