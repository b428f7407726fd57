//! The error type of the profiler.

#[cfg(feature = "config")]
use crate::config_error::ConfigError;
use crate::{
    failure::{Failure, Grouped, write_chain},
    report::Report,
    schedule::ScheduleError,
};
use std::{fmt, io};

/// An error in setting up, running or ending a profiler.
///
/// Its `Debug` output matches its `Display`, including the causes, since that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum Error {
    /// The schedule is invalid.
    Schedule(ScheduleError),
    /// A builder setting is invalid.
    #[non_exhaustive]
    Setting {
        /// The method that set it.
        setting: &'static str,
        /// The problem with its value.
        problem: String,
    },
    /// A setting of a file, a variable or the command line is invalid.
    #[cfg(feature = "config")]
    Config(ConfigError),
    /// Exporters that cannot export, as their [check](crate::Exporter::check) found.
    #[non_exhaustive]
    Exporters {
        /// The failure of each of these exporters.
        failures: Vec<Failure>,
    },
    /// A background thread could not be started.
    Thread(io::Error),
    /// There is no [memory snapshot](crate::Profiler::memory_snapshot).
    #[non_exhaustive]
    MemorySnapshot {
        /// The reason.
        problem: String,
    },
    /// Exporters or user functions failed. Everything else went on, so the report is included.
    #[non_exhaustive]
    Run {
        /// The failures in the order they happened: the first eight of each exporter. If an exporter has more, the last
        /// one gives their number and the last reason.
        failures: Vec<Failure>,
        /// The report that [`finish`](crate::Profiler::finish) would have returned.
        report: Box<Report>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedule(error) => write!(f, "invalid schedule: {error}"),
            Self::Setting { setting, problem } => write!(f, "invalid setting {setting}: {problem}"),
            #[cfg(feature = "config")]
            Self::Config(error) => write!(f, "{error}"),
            Self::Exporters { failures } => {
                f.write_str("cannot export")?;
                write!(f, "{}", Grouped(failures))
            }
            Self::Thread(_) => f.write_str("cannot start the profiler's background thread"),
            Self::MemorySnapshot { problem } => write!(f, "no memory snapshot: {problem}"),
            Self::Run { failures, .. } => {
                f.write_str("part of the run failed")?;
                write!(f, "{}", Grouped(failures))
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, self)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(source) => Some(source),
            // `Display` already includes the causes of these.
            #[cfg(feature = "config")]
            Self::Config(_) => None,
            Self::Schedule(_)
            | Self::Setting { .. }
            | Self::Exporters { .. }
            | Self::MemorySnapshot { .. }
            | Self::Run { .. } => None,
        }
    }
}

#[cfg(feature = "config")]
impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}
