//! The reasons why a file cannot be read.

use std::{error, fmt, io};

/// The reason a file cannot be read as a trace.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be opened or read, or decompressed.
    Io(io::Error),
    /// The file is truncated JSON, or not JSON, or not a trace. The error contains the line and the column.
    Json(serde_json::Error),
    /// The text contains a byte that is not UTF-8, at this offset.
    NotUtf8 {
        /// The number of bytes before it.
        offset: usize,
    },
    /// The file is compressed, and exceeds [`ReadError::MAX_BYTES`] when decompressed.
    TooLarge,
    /// The file is in an unsupported format.
    UnknownFormat {
        /// What the file seems to be.
        seen: &'static str,
    },
}

impl ReadError {
    /// The maximum size of a compressed file when decompressed: a small file crafted to become huge is rejected.
    pub const MAX_BYTES: u64 = 16 << 30;
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "{error}"),
            Self::Json(error) => write!(f, "not a JSON trace: {error}"),
            Self::NotUtf8 { offset } => write!(f, "not a JSON trace: invalid UTF-8 at byte {offset}"),
            Self::TooLarge => write!(f, "too large: more than {} GiB when decompressed", Self::MAX_BYTES >> 30),
            Self::UnknownFormat { seen } => {
                write!(f, "unsupported format: expected Chrome JSON or .kernspan, found {seen}")
            }
        }
    }
}

impl error::Error for ReadError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Json(error) => Some(error),
            Self::NotUtf8 { .. } | Self::TooLarge | Self::UnknownFormat { .. } => None,
        }
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<serde_json::Error> for ReadError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}
