//! Failures of exporters and user functions, which do not end the run.

use std::{any::Any, error::Error, fmt, sync::Arc};

/// A failure in a run that went on: of an exporter with a window, or of a schedule's function.
#[derive(Clone, Debug)]
pub struct Failure {
    origin: String,
    window: Option<u32>,
    error: Arc<dyn Error + Send + Sync>,
}

impl Failure {
    pub(crate) fn new(origin: &str, window: Option<u32>, error: Box<dyn Error + Send + Sync>) -> Self {
        Self { origin: origin.to_owned(), window, error: error.into() }
    }

    pub(crate) fn of_panic(origin: &str, window: Option<u32>, message: &str) -> Self {
        Self::new(origin, window, format!("panicked: {message}").into())
    }

    /// The name of the exporter that failed, or `on_trace` or `schedule`.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The window it failed with, if any.
    pub fn window(&self) -> Option<u32> {
        self.window
    }

    /// The error.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

/// Returns the message of a panic.
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

/// Writes an error and the chain of its causes.
pub(crate) fn write_chain(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{error}")?;
    std::iter::successors(error.source(), |cause| (*cause).source()).try_for_each(|cause| write!(f, ": {cause}"))
}
