//! New files, which appear whole or not at all.

use crate::fault::Fault;
use std::{
    fs,
    io::{self, Write},
    path::Path,
};
use tempfile::TempDir;

/// Returns the fault that a file cannot be written.
pub(crate) fn failed(path: &Path, error: impl std::fmt::Display) -> Fault {
    Fault::Failed(format!("{}: cannot be written: {error}", path.display()))
}

/// Makes a folder for unfinished files, on the same file system as `path`, so that they can be renamed to it.
pub(crate) fn folder_beside(path: &Path) -> Result<TempDir, Fault> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::Builder::new().prefix(".kernspan-").tempdir_in(parent).map_err(|error| failed(path, error))
}

/// Writes a file, or to standard output if its name is `-`.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), Fault> {
    if path.as_os_str() == "-" {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        return Ok(out.flush()?);
    }
    let folder = folder_beside(path)?;
    let unfinished = folder.path().join("unfinished");
    let written = fs::write(&unfinished, bytes).and_then(|()| fs::rename(unfinished, path));
    written.map_err(|error| failed(path, error))
}
