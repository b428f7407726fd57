//! Files that appear whole or not at all, under names that never collide.

use crate::{Error, trace::Trace};
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Writes a trace's file in `folder`, named as PyTorch names them, `{host}_{pid}.{nanoseconds}{ending}`, and returns its path.
///
/// The content goes to a file beside it that is renamed in the end. That file also holds the name against other windows and
/// processes: whoever made it, and found no finished file then, owns the name.
pub(crate) fn write(
    folder: &Path,
    trace: &Trace,
    ending: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let (path, unfinished, file) = claim(folder, trace, ending)?;
    let mut writer = BufWriter::with_capacity(1 << 16, file);
    let written = content(&mut writer).and_then(|()| writer.flush()).and_then(|()| fs::rename(&unfinished, &path));
    written.map_err(|error| {
        // Half a file helps nobody; what matters is the first error.
        let _ = fs::remove_file(&unfinished);
        Error::file(&path)(error)
    })?;
    Ok(path)
}

fn claim(folder: &Path, trace: &Trace, ending: &str) -> Result<(PathBuf, PathBuf, File), Error> {
    let metadata = trace.metadata();
    let worker = format!("{}_{}", safe(&metadata.host), metadata.pid);
    let mut nanos = trace.end().as_unix_nanos();
    loop {
        let path = folder.join(format!("{worker}.{nanos}{ending}"));
        let unfinished = folder.join(format!("{worker}.{nanos}{ending}.tmp"));
        match File::create_new(&unfinished) {
            Ok(file) if !path.exists() => return Ok((path, unfinished, file)),
            Ok(_) => drop(fs::remove_file(&unfinished)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::file(unfinished)(error)),
        }
        nanos = nanos.wrapping_add(1);
    }
}

/// A host name as part of a file name: nothing that names a folder, and short.
pub(super) fn safe(name: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
    name.chars().take(64).map(safe).collect()
}
