use std::fmt;

/// Whether what GPUs do is recorded, and if not, why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gpu {
    /// It is.
    Available(GpuLibrary),
    /// It cannot be.
    Unavailable(GpuProblem),
    /// Nobody asked for it: see [`activities`](crate::ProfilerBuilder::activities).
    #[default]
    NotAsked,
}

/// What is used to see what GPUs do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GpuLibrary {
    /// Where CUPTI was found.
    pub path: String,
    /// CUPTI's version as it gives it, as `130001`.
    pub cupti_version: u32,
    /// The newest CUDA that the driver knows, as `13000`.
    pub driver_version: u32,
    /// What is known to be amiss with this version.
    pub warning: Option<String>,
}

/// Why GPUs cannot be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuProblem {
    /// This build of kernspan cannot: no feature `cuda`, or a system without CUPTI.
    NotBuiltIn,
    /// There is no NVIDIA driver.
    NoDriver {
        /// What the loader said.
        message: String,
    },
    /// The driver sees no GPU.
    NoDevice,
    /// CUPTI is not there.
    NoLibrary {
        /// Where it was looked for, with what the loader said of files.
        looked: Vec<String>,
    },
    /// CUPTI is older than CUDA 12.
    TooOld {
        /// Its version as it gives it.
        version: u32,
    },
    /// Another profiler or debugger uses CUPTI in this process, and CUPTI takes only one.
    AnotherProfiler,
    /// Another profiler of this crate records GPUs in this process.
    AnotherKernspan,
    /// CUPTI's clock is not the system's, so that nothing of it can be put beside the spans.
    Clock {
        /// How far they are apart, in nanoseconds.
        nanos: u64,
    },
    /// The driver or CUPTI lacks a function that every release has.
    Missing {
        /// The function.
        function: &'static str,
    },
    /// A call failed.
    Failed {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// What that means.
        message: String,
    },
}

impl Gpu {
    /// Whether GPUs are recorded.
    pub fn is_available(&self) -> bool {
        matches!(self, Self::Available(_))
    }

    /// Why they are not, if they should be.
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
                write!(f, "CUPTI is missing; looked for {} (KERNSPAN_CUPTI may name it)", looked.join(", "))
            }
            Self::TooOld { version } => write!(f, "CUPTI {version} is older than CUDA 12.0"),
            Self::AnotherProfiler => f.write_str("another profiler or debugger has CUPTI, which takes only one"),
            Self::AnotherKernspan => f.write_str("another kernspan profiler in this process records it"),
            Self::Clock { nanos } => write!(f, "CUPTI's clock is {nanos} ns away from the system's"),
            Self::Missing { function } => write!(f, "the NVIDIA driver or CUPTI has no function {function}"),
            Self::Failed { call, code, message } => write!(f, "{call} failed with {code} ({message})"),
        }
    }
}

impl std::error::Error for GpuProblem {}
