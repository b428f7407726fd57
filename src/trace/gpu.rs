//! Whether GPUs are recorded, by which library, and if not, why not; and the time taken by that library itself.

use super::{ThreadId, Timestamp};
use std::{borrow::Cow, fmt, time::Duration};

/// Whether GPU activity is recorded, and if not, why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gpu {
    /// It is recorded, by this library.
    Available(GpuLibrary),
    /// It cannot be recorded, for this reason.
    Unavailable(GpuProblem),
    /// The program did not ask for it: see [`activities`](crate::ProfilerBuilder::activities).
    #[default]
    NotAsked,
}

/// The library that records GPU activity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuLibrary {
    /// The path of CUPTI.
    pub path: String,
    /// The version of CUPTI, in CUPTI's own numbering, such as `130001`.
    pub cupti_version: u32,
    /// The newest version of CUDA that the driver supports, such as `13000`.
    pub driver_version: u32,
    /// A known problem of this version, if any.
    pub warning: Option<String>,
}

/// The reason why GPUs cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuProblem {
    /// This build of kernspan has no GPU support: it lacks the feature `cuda`, or the system is not Linux.
    NotBuiltIn,
    /// There is no NVIDIA driver.
    NoDriver {
        /// The message of the dynamic loader.
        message: String,
    },
    /// The driver sees no GPU.
    NoDevice,
    /// CUPTI was not found.
    NoLibrary {
        /// The places searched, with the loader's message for each file it could not load.
        looked: Vec<String>,
    },
    /// CUPTI is older than CUDA 12.
    TooOld {
        /// The version, in CUPTI's own numbering.
        version: u32,
    },
    /// Another profiler or debugger is using CUPTI in this process, and CUPTI supports only one.
    AnotherProfiler,
    /// Another [`Profiler`](crate::Profiler) records GPUs in this process.
    AnotherKernspan,
    /// A thread of the profiler does not come back from a call of CUPTI, so nothing of GPUs is recorded any more.
    Stuck,
    /// CUPTI's clock differs from the system's, so its records cannot be related to spans.
    Clock {
        /// The difference between the clocks, in nanoseconds.
        nanos: u64,
    },
    /// The driver or CUPTI lacks a function that every release should have.
    Missing {
        /// The name of the function.
        function: &'static str,
    },
    /// The reason given in a file.
    Said {
        /// The reason.
        message: String,
    },
    /// A call to the driver or to CUPTI failed.
    Failed {
        /// The name of the function.
        call: &'static str,
        /// The error code it returned.
        code: u32,
        /// The meaning of the code.
        message: String,
    },
}

impl Gpu {
    /// Whether GPUs are recorded.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available(_))
    }

    /// The reason why GPUs cannot be recorded; `None` if they are, or if the program did not ask for it.
    pub fn problem(&self) -> Option<&GpuProblem> {
        match self {
            Self::Unavailable(problem) => Some(problem),
            _ => None,
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available(library) => {
                write!(f, "GPU recorded by CUPTI {} from {}", library.cupti_version, library.path)?;
                library.warning.iter().try_for_each(|warning| write!(f, " ({warning})"))
            }
            Self::Unavailable(problem) => write!(f, "GPU not recorded: {problem}"),
            Self::NotAsked => f.write_str("GPU not recorded, as it was not asked for"),
        }
    }
}

impl fmt::Display for GpuProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotBuiltIn => f.write_str("this build has no CUDA support (feature `cuda`, Linux)"),
            Self::NoDriver { message } => write!(f, "no NVIDIA driver ({message})"),
            Self::NoDevice => f.write_str("the NVIDIA driver sees no device"),
            Self::NoLibrary { looked } => {
                write!(f, "CUPTI not found; looked for {} (KERNSPAN_CUPTI can name the file)", looked.join(", "))
            }
            Self::TooOld { version } => write!(f, "CUPTI {version} is older than CUDA 12.0"),
            Self::AnotherProfiler => {
                f.write_str("another profiler or debugger is using CUPTI, which supports only one")
            }
            Self::AnotherKernspan => f.write_str("another kernspan profiler in this process is recording it"),
            Self::Stuck => f.write_str("CUPTI does not return from a call"),
            Self::Clock { nanos } => write!(f, "CUPTI's clock differs from the system's by {nanos} ns"),
            Self::Missing { function } => write!(f, "the NVIDIA driver or CUPTI has no function {function}"),
            Self::Said { message } => f.write_str(message),
            Self::Failed { call, code, message } => write!(f, "{call} failed with {code} ({message})"),
        }
    }
}

impl std::error::Error for GpuProblem {}

/// A period taken by the GPU's profiling library itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overhead {
    pub(crate) name: Cow<'static, str>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
}

impl Overhead {
    /// The library's name for it: `Buffer Flush`, `Instrumentation`, ….
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The thread that was delayed, if it was a single one.
    pub fn thread(&self) -> Option<ThreadId> {
        self.thread
    }

    /// When it began.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// When it ended.
    pub fn end(&self) -> Timestamp {
        self.end
    }

    /// The time from start to end.
    pub fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}
