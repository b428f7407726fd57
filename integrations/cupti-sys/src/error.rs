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
            Self::NotFound { looked } if looked.is_empty() => {
                f.write_str("libcupti not found; there was no place to look")
            }
            Self::NotFound { looked } => {
                f.write_str("libcupti not found; looked for ")?;
                looked.iter().enumerate().try_for_each(|(index, (place, reason))| {
                    let comma = if index == 0 { "" } else { ", " };
                    // A bare name is looked up by the loader, and mostly not there. That a file cannot be loaded is news.
                    match place.components().count() {
                        ..=1 => write!(f, "{comma}{}", place.display()),
                        _ => write!(f, "{comma}{} ({reason})", place.display()),
                    }
                })
            }
            Self::TooOld { version } => write!(f, "CUPTI {version} is older than CUDA 12.0"),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            // Its text is this one's already.
            Self::Broken(error) => error.source(),
            _ => None,
        }
    }
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// What the loader said: the error's own text says no more than that loading failed.
pub(crate) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_one_clause_that_names_the_thing() {
        let failed = Error::Failed { function: "cuInit", code: 999, message: "unknown error".to_owned() };
        let looked = vec![
            (PathBuf::from("libcupti.so.13"), "libcupti.so.13: No such file".to_owned()),
            (PathBuf::from("/a/libcupti.so.12"), "invalid ELF header".to_owned()),
        ];
        let expected = [
            (
                LoadError::NoDriver { message: "libcuda.so.1: No such file".to_owned() },
                "no NVIDIA driver: libcuda.so.1: No such file",
            ),
            (LoadError::NoDevice, "the NVIDIA driver sees no device"),
            (
                LoadError::NotFound { looked },
                "libcupti not found; looked for libcupti.so.13, /a/libcupti.so.12 (invalid ELF header)",
            ),
            (LoadError::TooOld { version: 17 }, "CUPTI 17 is older than CUDA 12.0"),
            (failed.into(), "cuInit failed with 999 (unknown error)"),
            (Error::Missing { function: "cuptiFinalize" }.into(), "the library has no cuptiFinalize"),
        ];
        for (error, text) in expected {
            assert_eq!(error.to_string(), text);
            assert!(std::error::Error::source(&error).is_none(), "{text} would be said twice");
        }
    }
}
