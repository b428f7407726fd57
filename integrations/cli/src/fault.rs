//! The reasons why a command fails, and the exit status of each.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
    process::ExitCode,
};

/// The reason why a command fails.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The command was called incorrectly.
    Usage(String),
    /// Something could not be read or written, or was not found.
    Failed(String),
    /// Some files could not be read, which has been reported; the others have been used.
    Incomplete,
    /// A run is worse than its baseline, which has been reported.
    Worse,
    /// It is unclear whether a run is worse than its baseline, which has been reported.
    Inconclusive,
    /// A program that was run has ended with this exit status.
    Status(u8),
    /// Standard output could not be written.
    Output(io::Error),
}

impl Fault {
    /// Prints the reason to standard error, and returns the exit status.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Usage(message) => {
                say(message);
                return ExitCode::from(2);
            }
            Self::Failed(message) => say(message),
            Self::Inconclusive => return ExitCode::from(3),
            Self::Status(code) => return ExitCode::from(*code),
            Self::Incomplete | Self::Worse => {}
            // The reader closed the pipe, as `head` does.
            Self::Output(error) if error.kind() == ErrorKind::BrokenPipe => return ExitCode::SUCCESS,
            Self::Output(error) => say(&format!("cannot write standard output: {}", reason_of(error))),
        }
        ExitCode::from(1)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// Writes a line to standard error, ignoring errors.
pub(crate) fn say(message: &str) {
    let _ = writeln!(io::stderr(), "kernspan: {message}");
}

/// Returns the reason of an error as part of a sentence, as the system gives it: `no space left on device`.
pub(crate) fn reason_of(error: &(dyn Error + 'static)) -> String {
    let error_of_system = error.downcast_ref::<io::Error>().or_else(|| error.source()?.downcast_ref());
    let Some(error) = error_of_system else { return error.to_string() };
    let text = error.to_string();
    let Some(code) = error.raw_os_error() else { return text };
    let text = text.strip_suffix(&format!(" (os error {code})")).unwrap_or(&text);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}
