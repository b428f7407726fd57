use crate::{report::Report, schedule::ScheduleError};
use std::{any::Any, fmt, io, path::PathBuf, sync::Arc};

/// What can go wrong while setting up, running or ending a profiler.
///
/// Its `Debug` reads like its `Display`, with the causes, since that is what a `main` that returns it prints.
#[non_exhaustive]
pub enum Error {
    /// The schedule makes no sense.
    Schedule(ScheduleError),
    /// A setting of the builder makes no sense.
    #[non_exhaustive]
    Setting {
        /// The method that set it.
        setting: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A background thread could not be started.
    Thread(io::Error),
    /// A file could not be written.
    #[non_exhaustive]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Exporters or user functions failed. Everything else went on, so the report is here too.
    #[non_exhaustive]
    Run {
        /// Every failure, in the order they happened.
        failures: Vec<Failure>,
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
            Self::Run { failures, .. } => {
                f.write_str("part of the run failed")?;
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
            Self::Run { .. } | Self::Setting { .. } => None,
        }
    }
}

/// What went wrong in a run that went on: an exporter that failed or panicked with a window, or a schedule's function that
/// panicked.
#[derive(Clone, Debug)]
pub struct Failure {
    origin: String,
    window: Option<u32>,
    error: Arc<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(origin: &str, window: Option<u32>, error: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self { origin: origin.to_owned(), window, error: error.into() }
    }

    pub(crate) fn of_panic(origin: &str, window: Option<u32>, message: &str) -> Self {
        Self::new(origin, window, format!("panicked: {message}").into())
    }

    /// Who failed: the exporter's name, `on_trace` or `schedule`.
    pub fn origin(&self) -> &str {
        &self.origin
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

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    message.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "with no message".to_owned())
}

impl fmt::Display for Failure {
    /// The origin, the window, and the whole chain of causes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if let Some(window) = self.window {
            write!(f, ", window {window}")?;
        }
        f.write_str(": ")?;
        write_chain(f, &*self.error)
    }
}
