//! Reasons why no tool receives annotations.

use std::{error, ffi::OsString, fmt};

/// A reason why no tool receives annotations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No tool asks for annotations: the variable `NVTX_INJECTION64_PATH` is not set.
    NotAsked,
    /// The tool's library could not be loaded.
    Load {
        /// The value of the variable.
        path: OsString,
        /// The loader's message.
        reason: String,
    },
    /// The tool's library has no function `InitializeInjectionNvtx2`.
    NoEntryPoint {
        /// The value of the variable.
        path: OsString,
    },
    /// The tool's library refused to work: its function returned 0.
    Refused {
        /// The value of the variable.
        path: OsString,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("no tool asks for NVTX annotations: NVTX_INJECTION64_PATH is not set"),
            Self::Load { path, reason } => {
                write!(f, "cannot load the library {} of NVTX_INJECTION64_PATH: {reason}", path.display())
            }
            Self::NoEntryPoint { path } => {
                let path = path.display();
                write!(f, "the library {path} of NVTX_INJECTION64_PATH has no function InitializeInjectionNvtx2")
            }
            Self::Refused { path } => {
                write!(f, "the library {} of NVTX_INJECTION64_PATH failed to initialize", path.display())
            }
        }
    }
}

impl error::Error for Error {}
