//! The result of an export.

use std::path::PathBuf;

/// The result of an export: the files written, or the reason they could not be.
pub type ExportResult = Result<Vec<PathBuf>, Box<dyn std::error::Error + Send + Sync>>;
