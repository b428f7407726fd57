use crate::{report::Report, schedule::ScheduleError};
use std::{fmt, io, path::PathBuf, sync::Arc};

/// What can go wrong while setting up, running or ending a profiler.
///
/// Its `Debug` reads like its `Display`, with the causes, since that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum Error {
    /// The schedule makes no sense.
    Schedule(ScheduleError),
    /// A setting of the builder makes no sense.
    Setting {
        /// The method that set it.
        setting: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A background thread could not be started.
    Thread(io::Error),
    /// A file could not be written.
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Exporters failed. Everything else went on, so the report is here too.
    Exports {
        /// Every failure, in the order they happened.
        failures: Vec<ExportFailure>,
        /// What [`finish`](crate::Profiler::finish) would have returned.
        report: Box<Report>,
    },
}

impl Error {
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Schedule(error) => write!(f, "invalid schedule: {error}"),
            Self::Setting { setting, problem } => write!(f, "invalid setting {setting}: {problem}"),
            Self::Thread(_) => f.write_str("cannot start the profiler's background thread"),
            Self::File { path, .. } => write!(f, "cannot write {}", path.display()),
            Self::Exports { failures, .. } => {
                f.write_str(if failures.len() == 1 { "an export failed" } else { "exports failed" })?;
                failures.iter().try_for_each(|failure| write!(f, "; {failure}"))
            }
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, self)
    }
}

/// An error and the whole chain of its causes.
fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn std::error::Error) -> fmt::Result {
    write!(f, "{error}")?;
    std::iter::successors(error.source(), |error| error.source()).try_for_each(|cause| write!(f, ": {cause}"))
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Schedule(error) => Some(error),
            Self::Thread(source) | Self::File { source, .. } => Some(source),
            Self::Exports { .. } | Self::Setting { .. } => None,
        }
    }
}

/// One exporter's failure with one window, or a panic in a user's callback.
#[derive(Clone, Debug)]
pub struct ExportFailure {
    pub(crate) exporter: String,
    pub(crate) window: Option<u32>,
    pub(crate) error: Arc<dyn std::error::Error + Send + Sync>,
}

impl ExportFailure {
    /// The exporter that failed.
    pub fn exporter(&self) -> &str {
        &self.exporter
    }

    /// The window it failed with, if any.
    pub fn window(&self) -> Option<u32> {
        self.window
    }

    /// Why.
    pub fn error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl fmt::Display for ExportFailure {
    /// The exporter, the window, and the whole chain of causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.exporter)?;
        if let Some(window) = self.window {
            write!(f, ", window {window}")?;
        }
        f.write_str(": ")?;
        write_chain(f, &*self.error)
    }
}
