//! Files that appear whole or not at all, under names that never collide.

mod unfinished;

use self::unfinished::UnfinishedFile;
use crate::trace::Trace;
use std::{
    collections::BTreeSet,
    error::Error,
    fmt,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// A file or folder that could not be written.
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    source: io::Error,
}

impl FileError {
    pub(crate) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self { path, source }
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}", self.path.display())
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Writes a trace's file in `folder`, named as PyTorch names them, `{host}_{pid}.{nanoseconds}{ending}`, and returns
/// its path.
pub(crate) fn write(
    folder: &Path,
    trace: &Trace,
    ending: &str,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<PathBuf, FileError> {
    let metadata = trace.metadata();
    let worker = format!("{}_{}", safe(&metadata.host), metadata.pid);
    let end = trace.end().as_unix_nanos();
    write_first_free(|attempt| folder.join(format!("{worker}.{}{ending}", end.wrapping_add(attempt))), content)
}

/// Writes a file under the first of these names that is free, and returns its path.
///
/// The content goes to a temporary file beside it, which is renamed in the end. The temporary file also reserves the
/// name: whoever creates it while no finished file of that name exists owns the name.
pub(crate) fn write_first_free(
    name: impl Fn(u64) -> PathBuf,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<PathBuf, FileError> {
    let (path, mut unfinished) = claim(&name)?;
    let written = content(unfinished.writer()).and_then(|()| unfinished.finish(&path));
    written.map_err(FileError::at(&path))?;
    Ok(path)
}

/// Writes a file that replaces the one of this name, if there is one, once it is whole.
pub(crate) fn replace(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FileError> {
    let busy = || io::Error::new(io::ErrorKind::ResourceBusy, "it is being written by somebody else");
    let unfinished = UnfinishedFile::create(path).and_then(|unfinished| unfinished.ok_or_else(busy));
    let written =
        unfinished.and_then(|mut unfinished| content(unfinished.writer()).and_then(|()| unfinished.finish(path)));
    written.map_err(FileError::at(path))
}

/// Checks that files can be written into `folder`, by writing a small file and removing it. The folder is created if it
/// does not exist, and stays: another process may be about to write into it.
pub(crate) fn check(folder: &Path) -> Result<(), FileError> {
    fs::create_dir_all(folder).map_err(FileError::at(folder))?;
    let mut attempt = 0_u64;
    loop {
        // Processes on other hosts may have the same id, and check the same folder.
        let path = folder.join(format!(".kernspan-check-{}-{attempt}.tmp", std::process::id()));
        match File::create_new(&path) {
            Ok(mut file) => {
                let written = file.write_all(b"kernspan can write here\n");
                drop(file);
                return written.and(fs::remove_file(&path)).map_err(FileError::at(folder));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
            Err(error) => return Err(FileError::at(folder)(error)),
        }
    }
}

fn claim(name: &dyn Fn(u64) -> PathBuf) -> Result<(PathBuf, UnfinishedFile), FileError> {
    let mut attempt = 0;
    loop {
        let path = name(attempt);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(FileError::at(folder))?;
            clean_up(folder);
        }
        let unfinished = UnfinishedFile::create(&path).map_err(FileError::at(&path))?;
        if let Some(unfinished) = unfinished.filter(|_| !path.exists()) {
            return Ok((path, unfinished));
        }
        attempt += 1;
    }
}

/// Removes files from a folder that were being written when their process was killed. It does so once for each folder,
/// since it takes the longer the more files there are.
pub(crate) fn clean_up(folder: &Path) {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        unfinished::remove_abandoned(folder);
    }
}

/// Returns a host name as part of a file name: at most 64 characters, and none that is special in a path.
pub(crate) fn safe(name: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
    name.chars().take(64).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use std::fs;

    #[test]
    fn a_check_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs/mnist");
        check(&runs).unwrap();
        check(&runs).unwrap();
        assert_eq!(fs::read_dir(&runs).unwrap().count(), 0);
    }

    #[test]
    fn a_check_leaves_the_files_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let theirs = folder.path().join(format!(".kernspan-check-{}-0.tmp", std::process::id()));
        fs::write(&theirs, "of another host").unwrap();
        check(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&theirs).unwrap(), "of another host");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_where_the_folder_should_be_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        fs::write(&runs, "mine").unwrap();
        for bad in [runs.clone(), runs.join("mnist")] {
            assert_eq!(check(&bad).unwrap_err().path(), bad);
        }
        assert_eq!(fs::read_to_string(&runs).unwrap(), "mine");
    }
}
