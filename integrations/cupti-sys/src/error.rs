use std::{fmt, path::PathBuf};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The library has no such function: it is too old, or too new.
    Missing {
        /// The function.
        function: &'static str,
    },
    /// The function returned an error.
    Failed {
        /// The function.
        function: &'static str,
        /// What it returned: see [`result`](crate::result) for CUPTI's, and `CUresult` for the driver's.
        code: u32,
        /// What the library says that means.
        message: String,
    },
}

impl Error {
    /// The function that failed.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Missing { function } | Self::Failed { function, .. } => function,
        }
    }

    /// What it returned, if it could be called.
    pub fn code(&self) -> Option<u32> {
        match self {
            Self::Missing { .. } => None,
            Self::Failed { code, .. } => Some(*code),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { function } => write!(f, "the library has no {function}"),
            Self::Failed { function, code, message } => write!(f, "{function} failed with {code} ({message})"),
        }
    }
}

impl std::error::Error for Error {}

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no NVIDIA driver.
    NoDriver {
        /// What the loader said.
        message: String,
    },
    /// The driver sees no device.
    NoDevice,
    /// The library was not found.
    NotFound {
        /// Where it was looked for, with what the loader said.
        looked: Vec<(PathBuf, String)>,
    },
    /// It is older than CUDA 12.0.
    TooOld {
        /// Its version, as it gives it.
        version: u32,
    },
    /// It does not work.
    Broken(Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { message } => write!(f, "no NVIDIA driver: {message}"),
            Self::NoDevice => f.write_str("the NVIDIA driver sees no device"),
            Self::NotFound { looked } => {
                f.write_str("libcupti not found; looked for")?;
                looked.iter().try_for_each(|(place, _)| write!(f, " {}", place.display()))
            }
            Self::TooOld { version } => write!(f, "CUPTI {version} is older than CUDA 12.0"),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Broken(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}
