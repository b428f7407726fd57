//! Errors in settings, with the place of each and what was probably meant.

use std::{fmt, path::PathBuf};

/// Where a setting came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Nobody set it.
    #[default]
    Default,
    /// A file.
    #[non_exhaustive]
    File {
        /// The file.
        path: PathBuf,
        /// The line and the column of the key, counted from 1, if they are known.
        position: Option<(usize, usize)>,
    },
    /// An environment variable.
    #[non_exhaustive]
    Variable {
        /// Its name.
        name: String,
    },
    /// The program, or its command line.
    #[non_exhaustive]
    Program {
        /// The name that the program gave to the source, such as `--profiling.active`.
        name: String,
    },
}

impl Origin {
    pub(crate) fn variable(name: &str) -> Self {
        Self::Variable { name: name.to_owned() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, position: Some((line, column)) } => write!(f, "{}:{line}:{column}", path.display()),
            Self::File { path, position: None } => write!(f, "{}", path.display()),
            Self::Variable { name } | Self::Program { name } => f.write_str(name),
        }
    }
}

/// A setting that is unknown, has the wrong type or contradicts another.
///
/// ```
/// # use kernspan::config::Settings;
/// let error = Settings::new().with_variables([("KERNSPAN_SCHEDULE", "wiat=5,active=3")]).unwrap_err();
/// assert_eq!(error.to_string(), "KERNSPAN_SCHEDULE: unknown key `wiat`: did you mean `wait`?");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    origin: Origin,
    problem: String,
}

impl ConfigError {
    pub(crate) fn new(origin: Origin, problem: impl Into<String>) -> Self {
        Self { origin, problem: problem.into() }
    }

    /// The place of the setting.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The problem, and what to do about it.
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.problem),
            origin => write!(f, "{origin}: {}", self.problem),
        }
    }
}

impl std::error::Error for ConfigError {}
