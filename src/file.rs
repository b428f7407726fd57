//! Files that appear whole or not at all, under names that never collide.

mod unfinished;

use self::unfinished::UnfinishedFile;
use crate::trace::Trace;
use std::{
    cell::RefCell,
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

/// Writes a trace's file in `folder` under the name that PyTorch would give it, `{host}_{pid}.{nanoseconds}{ending}`,
/// and returns its path.
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

thread_local!(static NEW_FILES: RefCell<Option<Vec<PathBuf>>> = const { RefCell::new(None) });

/// Notes the files that [`write_first_free`] creates on this thread from now on.
pub(crate) fn note_new_files() {
    NEW_FILES.set(Some(Vec::new()));
}

/// Returns the files noted since the last call.
pub(crate) fn take_new_files() -> Vec<PathBuf> {
    NEW_FILES.with_borrow_mut(|files| files.as_mut().map(std::mem::take)).unwrap_or_default()
}

/// Writes a file under the first of these names that is free, and returns its path.
///
/// Where the file system supports it, the file has no name until it is complete. Elsewhere the content goes to a
/// temporary file in the same folder, which is renamed at the end. That file also reserves the name: whoever creates it
/// while no finished file of that name exists owns the name.
pub(crate) fn write_first_free(
    name: impl Fn(u64) -> PathBuf,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<PathBuf, FileError> {
    let first = name(0);
    let path = if let Some(mut unfinished) = UnfinishedFile::unnamed(nearest_folder(&first)) {
        content(unfinished.writer()).map_err(FileError::at(first))?;
        link_first_free(unfinished, &name)?
    } else {
        let (path, mut unfinished) = claim(&name)?;
        let written = content(unfinished.writer()).and_then(|()| unfinished.rename(&path));
        written.map_err(FileError::at(&path))?;
        path
    };
    NEW_FILES.with_borrow_mut(|files| files.iter_mut().for_each(|files| files.push(path.clone())));
    Ok(path)
}

/// Writes a file that appears whole or not at all, replacing any existing file of this name.
///
/// If the disk is full or the process is killed, the old file remains unchanged. On Linux, most file systems then keep
/// nothing of the new one. On others, a temporary file may remain in the same folder; the next call removes it. The new
/// file gets the permissions of the old one. Special files, such as `/dev/stdout`, are written in place, and so are the
/// targets of symbolic links.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("summary.txt");
/// use std::io::Write;
///
/// kernspan::export::write_file(&path, |out| writeln!(out, "28.8 ms a step"))?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "28.8 ms a step\n");
/// # Ok::<(), kernspan::export::FileError>(())
/// ```
pub fn write_file(
    path: impl AsRef<Path>,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), FileError> {
    let path = path.as_ref();
    replace(path, content).map_err(FileError::at(path))
}

fn replace(path: &Path, content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let old = fs::metadata(path).ok();
    // `/dev/stdout` and `/proc/self/fd/1` lead to the file that output was redirected to, which others continue to
    // write.
    let is_open_elsewhere = ["/dev", "/proc"].iter().any(|folder| path.starts_with(folder));
    if is_open_elsewhere || old.as_ref().is_some_and(|old| !old.is_file()) {
        let mut out = BufWriter::new(File::options().write(true).open(path)?);
        content(&mut out)?;
        return out.flush();
    }
    // A link stays a link. A dangling link is replaced.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = folder_of(path);
    clean_up(folder);
    let mut unfinished = match UnfinishedFile::unnamed(folder) {
        Some(unfinished) => unfinished,
        None => UnfinishedFile::temporary(folder)?,
    };
    content(unfinished.writer())?;
    unfinished.replace(path, old.map(|old| old.permissions()))
}

/// Checks that files can be written in `folder`, by writing a small file and removing it. A missing folder is created,
/// and stays: another process may be about to write into it.
pub(crate) fn check(folder: &Path) -> Result<(), FileError> {
    fs::create_dir_all(folder).map_err(FileError::at(folder))?;
    let mut attempt = 0_u64;
    loop {
        // Processes on other hosts may have the same id and check the same folder.
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
        make_folder_of(&path)?;
        let unfinished = UnfinishedFile::create(&path).map_err(FileError::at(&path))?;
        if let Some(unfinished) = unfinished.filter(|_| !path.exists()) {
            return Ok((path, unfinished));
        }
        attempt += 1;
    }
}

fn link_first_free(mut unfinished: UnfinishedFile, name: &dyn Fn(u64) -> PathBuf) -> Result<PathBuf, FileError> {
    let mut attempt = 0;
    loop {
        let path = name(attempt);
        make_folder_of(&path)?;
        if unfinished.link(&path).map_err(FileError::at(&path))? {
            return Ok(path);
        }
        attempt += 1;
    }
}

fn make_folder_of(path: &Path) -> Result<(), FileError> {
    let folder = folder_of(path);
    fs::create_dir_all(folder).map_err(FileError::at(folder))?;
    clean_up(folder);
    Ok(())
}

/// Returns the folder of a file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the innermost existing folder on the path of a file. An unnamed file created there can be given a name in
/// folders that do not exist yet.
fn nearest_folder(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.exists()).unwrap_or(Path::new("."))
}

/// Removes files that were being written when their process was killed. This happens once per folder, since its cost
/// grows with the number of files.
pub(crate) fn clean_up(folder: &Path) {
    static DONE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    if DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_owned()) {
        unfinished::remove_abandoned(folder);
    }
}

/// Returns a host name for use in a file name: at most 64 characters, none of them special in a path.
pub(crate) fn safe(name: &str) -> String {
    let safe = |c: char| if c.is_alphanumeric() || "-_".contains(c) { c } else { '-' };
    name.chars().take(64).map(safe).collect()
}

#[cfg(test)]
mod tests {
    use super::{check, write_file, write_first_free};
    use std::{
        fs,
        io::{self, Write},
    };

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

    #[test]
    fn a_name_that_is_taken_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let name = |attempt: u64| folder.path().join(format!("{attempt}/trace"));
        for text in ["first", "second"] {
            write_first_free(name, |out| out.write_all(text.as_bytes())).unwrap();
        }
        assert_eq!([0, 1].map(|attempt| fs::read_to_string(name(attempt)).unwrap()), ["first", "second"]);
    }

    #[test]
    fn a_file_that_fails_leaves_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary");
        fs::write(&path, "old").unwrap();
        let error = write_file(&path, |out| {
            out.write_all(&[0; 1 << 17])?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(error.unwrap_err().path(), path);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_special_files_stay() {
        let folder = tempfile::tempdir().unwrap();
        let [target, link] = ["target", "link"].map(|name| folder.path().join(name));
        fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink("target", &link).unwrap();
        write_file(&link, |out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&target).unwrap(), "new");
        write_file("/dev/null", |out| out.write_all(b"new")).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
