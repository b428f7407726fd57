use std::{fmt, path::PathBuf};

/// The failure of a call to CUPTI or the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The library does not have the function: it is too old or too new.
    Missing {
        /// The C name of the function.
        function: &'static str,
    },
    /// The function returned an error.
    Failed {
        /// The C name of the function.
        function: &'static str,
        /// The returned code: one of [`result`](crate::result) from CUPTI, a `CUresult` from the driver.
        code: u32,
        /// The library's own description of the code.
        message: String,
    },
}

impl Error {
    /// Returns the C name of the function that failed.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Missing { function } | Self::Failed { function, .. } => function,
        }
    }

    /// Returns the code that the function returned; `None` if the library does not have the function.
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

/// The reason why the driver or CUPTI cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// There is no NVIDIA driver.
    NoDriver {
        /// The loader's message.
        message: String,
    },
    /// The driver sees no device.
    NoDevice,
    /// The library was not found.
    NotFound {
        /// The paths that were tried, each with the loader's message.
        looked: Vec<(PathBuf, String)>,
    },
    /// The library is older than CUDA 12.0.
    TooOld {
        /// The version that it reports.
        version: u32,
    },
    /// The library does not work.
    Broken(Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { message } => write!(f, "no NVIDIA driver: {message}"),
            Self::NoDevice => f.write_str("the NVIDIA driver sees no device"),
            Self::NotFound { looked } if looked.is_empty() => {
                f.write_str("libcupti not found; there were no paths to try")
            }
            Self::NotFound { looked } => {
                f.write_str("libcupti not found; looked for ")?;
                looked.iter().enumerate().try_for_each(|(index, (path, reason))| {
                    let comma = if index == 0 { "" } else { ", " };
                    // The reason is worth printing only for a file that exists: bare names are mostly not found.
                    match path.components().count() {
                        ..=1 => write!(f, "{comma}{}", path.display()),
                        _ => write!(f, "{comma}{} ({reason})", path.display()),
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
            // This error's text already contains the inner one's.
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

/// Returns the loader's message, which is the source of the error: the error itself only says that loading failed.
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
