//! Output files, which appear whole or not at all and never replace an input file.

use crate::fault::{Fault, reason_of, say};
use kernspan::export::write_file;
use std::{
    error::Error,
    fs,
    io::{self, BufWriter, Write},
    path::Path,
};

/// Writes a file, or to standard output if its name is `-`, and reports it.
pub(crate) fn write(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    write_with_note(path, "", content)
}

/// Writes a file, or to standard output if its name is `-`, and reports it, with a note on its content.
pub(crate) fn write_with_note(
    path: &Path,
    note: &str,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Fault> {
    if is_standard_output(path) {
        let mut out = BufWriter::new(io::stdout().lock());
        content(&mut out)?;
        return Ok(out.flush()?);
    }
    write_file(path, |out| content(out)).map_err(|error| cannot_write(path, &error))?;
    say(&format!("wrote {}{note}", path.display()));
    Ok(())
}

/// Returns the fault that a file or folder cannot be written. Only the reason of the error is used: it may name a
/// temporary file that means nothing to the user.
pub(crate) fn cannot_write(path: &Path, error: &(dyn Error + 'static)) -> Fault {
    Fault::Failed(format!("cannot write {}: {}", path.display(), reason_of(error)))
}

/// Returns whether two paths lead to the same file.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

/// Returns the device and inode of a file, which hard links share. Special files, such as `/dev/null`, can be read and
/// written at the same time.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|file| (file.dev(), file.ino()))
}

#[cfg(not(unix))]
fn identity(path: &Path) -> Option<std::path::PathBuf> {
    fs::canonicalize(path).ok().filter(|path| path.is_file())
}

fn is_standard_output(path: &Path) -> bool {
    path.as_os_str() == "-"
}
