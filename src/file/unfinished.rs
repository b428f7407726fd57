//! A file that is being written, unnamed or under a temporary name, and the removal of temporary files left behind by
//! killed processes.

use crate::{file::safe, trace::Metadata};
#[cfg(unix)]
use rustix::fs::FlockOperation;
use std::{
    ffi::OsStr,
    fs::{self, DirEntry, File, Permissions},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    time::Duration,
};

/// A file that is being written. Dropping it removes it, unless it has received its final name.
///
/// Its writer holds a lock on it (`flock`), which ends with the process, however it ends. So an unlocked temporary file
/// was left by a process that was killed. A process id in the name would not tell: ids are reused, and mean nothing in
/// another container or on another machine.
#[derive(Debug)]
pub(super) struct UnfinishedFile {
    /// The temporary name, if it has one.
    name: Option<PathBuf>,
    writer: BufWriter<File>,
}

impl UnfinishedFile {
    /// The suffix that identifies the profiler's own temporary files.
    const SUFFIX: &str = ".kernspan.tmp";

    fn new(name: Option<PathBuf>, file: File) -> Self {
        Self { name, writer: BufWriter::with_capacity(1 << 16, file) }
    }

    /// Creates an unnamed file on the file system of this folder. Nothing is left of it if the process is killed.
    /// Returns `None` if the file system cannot do so, such as NFS, or if the folder is not writable.
    #[cfg(target_os = "linux")]
    pub(super) fn unnamed(folder: &Path) -> Option<Self> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        // The same mode as `File::create`.
        let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(0o666)).ok()?);
        // Without /proc it could never get a name.
        fs::metadata(path_of(&file)).ok()?;
        lock(&file);
        Some(Self::new(None, file))
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn unnamed(_: &Path) -> Option<Self> {
        None
    }

    /// Creates the temporary file for a file of this name. Returns `None` if another writer has created it.
    pub(super) fn create(path: &Path) -> io::Result<Option<Self>> {
        let mut name = path.as_os_str().to_owned();
        name.push(Self::SUFFIX);
        Self::create_named(name.into())
    }

    /// Creates a temporary file in a folder, independent of the final name.
    pub(super) fn temporary(folder: &Path) -> io::Result<Self> {
        first_free(folder, |name| Self::create_named(name.to_owned()))
    }

    fn create_named(name: PathBuf) -> io::Result<Option<Self>> {
        loop {
            let file = match File::create_new(&name) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
                Err(error) => return Err(error),
            };
            // Before it was locked, another process may have considered it abandoned and removed it.
            if !lock(&file) || !is_removed(&file, &name) {
                return Ok(Some(Self::new(Some(name), file)));
            }
        }
    }

    pub(super) fn writer(&mut self) -> &mut BufWriter<File> {
        &mut self.writer
    }

    /// Gives an unnamed file its name. Returns false if the name is taken.
    #[cfg(target_os = "linux")]
    pub(super) fn link(&mut self, path: &Path) -> io::Result<bool> {
        use rustix::{
            fs::{AtFlags, CWD},
            io::Errno,
        };
        self.writer.flush()?;
        match rustix::fs::linkat(CWD, path_of(self.writer.get_ref()), CWD, path, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn link(&mut self, _: &Path) -> io::Result<bool> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives the file this name and these permissions, replacing the file that has the name.
    pub(super) fn replace(mut self, path: &Path, permissions: Option<Permissions>) -> io::Result<()> {
        self.writer.flush()?;
        let file = self.writer.get_ref();
        // Some file systems report a full disk only now. The old file must still be there then.
        file.sync_data()?;
        // File systems without permissions refuse.
        let _ = permissions.map(|permissions| file.set_permissions(permissions));
        if self.name.is_none() {
            if self.link(path)? {
                return Ok(());
            }
            // Only a file with a name can replace another.
            let folder = super::folder_of(path);
            self.name = Some(first_free(folder, |name| Ok(self.link(name)?.then(|| name.to_owned())))?);
        }
        self.rename(path)
    }

    /// Renames the file from its temporary name to its final one.
    pub(super) fn rename(mut self, path: &Path) -> io::Result<()> {
        self.writer.flush()?;
        if let Some(name) = &self.name {
            fs::rename(name, path)?;
        }
        self.name = None;
        Ok(())
    }
}

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // This error is ignored, since an earlier one is being reported.
            let _ = fs::remove_file(name);
        }
    }
}

/// Calls `make` with temporary names in a folder, which are short and begin with the host, until it returns a value.
fn first_free<T>(folder: &Path, mut make: impl FnMut(&Path) -> io::Result<Option<T>>) -> io::Result<T> {
    let process = format!("{}_{}", safe(&Metadata::of_this_process().host), std::process::id());
    let mut attempt = 0_u64;
    loop {
        if let Some(made) = make(&folder.join(format!("{process}.{attempt}{}", UnfinishedFile::SUFFIX)))? {
            return Ok(made);
        }
        attempt += 1;
    }
}

/// Returns a path to an open file that may have no other path.
#[cfg(target_os = "linux")]
fn path_of(file: &File) -> PathBuf {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Removes the temporary files in a folder whose writers are gone. Files that cannot be read or locked are kept.
pub(super) fn remove_abandoned(folder: &Path) {
    let host = safe(&Metadata::of_this_process().host);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if may_be_abandoned(&entry, &host) {
            remove_if_unlocked(&entry.path());
        }
    }
}

/// The time after which an unlocked file from another machine counts as abandoned. Some file systems do not show locks
/// to other machines, but they do show when a file was last written.
const UNTOUCHED: Duration = Duration::from_secs(3600);

/// Whether a file of this name and age is abandoned if it is not locked.
fn may_be_abandoned(entry: &DirEntry, host: &str) -> bool {
    let name = entry.file_name();
    let is_ours = name.as_encoded_bytes().ends_with(UnfinishedFile::SUFFIX.as_bytes());
    if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
        return false;
    }
    let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
    is_of_host(&name, host) || modified.and_then(|time| time.elapsed().ok()).is_some_and(|age| age > UNTOUCHED)
}

/// Whether a file's name begins with this host, as the names that exporters choose do.
fn is_of_host(name: &OsStr, host: &str) -> bool {
    name.to_str().and_then(|name| name.strip_prefix(host)).is_some_and(|rest| rest.starts_with(['_', '.']))
}

fn remove_if_unlocked(path: &Path) {
    // Opened for writing, since NFS cannot lock a file otherwise.
    let Ok(file) = File::options().write(true).open(path) else { return };
    // Whoever removes or renames a temporary file holds its lock. So if the path leads to this file now, it keeps doing
    // so.
    if try_lock(&file) && is_at(&file, path) {
        let _ = fs::remove_file(path);
    }
}

/// Locks a file. Returns false if the file system has no locks.
#[cfg(unix)]
fn lock(file: &File) -> bool {
    // It waits only for a process that is about to remove the file.
    rustix::io::retry_on_intr(|| rustix::fs::flock(file, FlockOperation::LockExclusive)).is_ok()
}

/// Locks a file. Returns false if another process has locked it, or if the file system has no locks.
#[cfg(unix)]
fn try_lock(file: &File) -> bool {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Whether a path leads to this exact file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let same = |open: fs::Metadata, there: fs::Metadata| (open.dev(), open.ino()) == (there.dev(), there.ino());
    file.metadata().is_ok_and(|open| fs::symlink_metadata(path).is_ok_and(|there| same(open, there)))
}

/// Whether a file that was at this path has been removed. Both signs are required, since some file systems make up
/// inode numbers and link counts.
#[cfg(unix)]
fn is_removed(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    file.metadata().is_ok_and(|open| open.nlink() == 0) && !is_at(file, path)
}

#[cfg(not(unix))]
fn lock(_: &File) -> bool {
    false
}

#[cfg(not(unix))]
fn try_lock(_: &File) -> bool {
    false
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    false
}

#[cfg(not(unix))]
fn is_removed(_: &File, _: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests;
