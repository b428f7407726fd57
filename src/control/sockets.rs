//! The sockets of running programs: where they are, who may use them, and how those of dead processes are removed.
//!
//! A socket is in a folder of its user that nobody else can enter, and has a name that says which process it belongs
//! to. It appears under that name only when it can be connected to, so that one that refuses is certain to be dead.

use rustix::process::{Pid, getuid, test_kill_process};
use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt, MetadataExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// A profiler that can be asked, by its socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Listening {
    /// The process id.
    pub pid: u32,
    /// The rank of the process.
    pub rank: u32,
    /// The number of the profiler in its process, counted from 0.
    pub profiler: u32,
    /// The socket.
    pub path: PathBuf,
}

impl Listening {
    const ENDING: &'static str = "sock";

    fn at(folder: &Path, pid: u32, rank: u32, profiler: u32) -> Self {
        let path = folder.join(format!("{pid}-rank{rank}-{profiler}.{}", Self::ENDING));
        Self { pid, rank, profiler, path }
    }

    fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.strip_suffix(Self::ENDING)?.strip_suffix('.')?;
        let mut parts = name.split('-');
        let (pid, rank, profiler) = (parts.next()?, parts.next()?.strip_prefix("rank")?, parts.next()?);
        let [pid, rank, profiler] = [pid, rank, profiler].map(|number| number.parse().ok());
        let path = path.to_owned();
        parts.next().is_none().then_some(Self { pid: pid?, rank: rank?, profiler: profiler?, path })
    }
}

/// Returns the programs of this user that can be asked, by process id and rank, and removes the sockets of those that
/// are dead. Nothing is sent to them.
///
/// ```
/// for program in kernspan::control::listening() {
///     println!("{} (rank {})", program.pid, program.rank);
/// }
/// ```
pub fn listening() -> Vec<Listening> {
    listening_of(getuid().as_raw())
}

/// Returns the programs of a user that can be asked. Only root may ask those of another user.
pub fn listening_of(uid: u32) -> Vec<Listening> {
    let mut found = Vec::new();
    for folder in folders(uid).iter().filter(|folder| check(folder, uid).is_ok()) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        found.extend(entries.filter_map(|entry| Listening::parse(&entry.path())));
    }
    found.retain(|program| is_alive(program.pid) || !remove_if_dead(&program.path));
    found.sort();
    found.dedup();
    found
}

/// Returns the user that a process belongs to, if there is such a process and the system tells.
pub(super) fn owner(pid: u32) -> Option<u32> {
    fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid())
}

/// Returns the folders that a user's sockets may be in, in the order in which a program tries them.
fn folders(uid: u32) -> Vec<PathBuf> {
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| uid == getuid().as_raw());
    folders_with(uid, of_session.as_deref())
}

fn folders_with(uid: u32, of_session: Option<&OsStr>) -> Vec<PathBuf> {
    let of_session = of_session.map(PathBuf::from).filter(|folder| folder.is_absolute());
    // A program and the one that asks it may have been started in different ways, of which only one sets the variable.
    let of_user = PathBuf::from(format!("/run/user/{uid}"));
    let mut folders: Vec<_> = of_session.into_iter().chain([of_user]).map(|folder| folder.join("kernspan")).collect();
    folders.push(format!("/tmp/kernspan-{uid}").into());
    folders.dedup();
    folders
}

/// Checks that a folder belongs to the user, that nobody else can enter it, and that it is not a link to one.
fn check(folder: &Path, uid: u32) -> io::Result<()> {
    let metadata = fs::symlink_metadata(folder)?;
    let problem = match () {
        () if !metadata.is_dir() => "is not a folder".to_owned(),
        () if metadata.uid() != uid => format!("belongs to user {}, not to user {uid}", metadata.uid()),
        () if metadata.mode() & 0o077 != 0 => format!("can be entered by others: its mode is {:o}", metadata.mode()),
        () => return Ok(()),
    };
    Err(io::Error::other(format!("{} {problem}", folder.display())))
}

/// Creates the folder of this user's sockets, if there is none, and returns it.
fn create_folder(uid: u32) -> io::Result<PathBuf> {
    /// The longest path of a folder: that of a socket has 103 bytes at most, on macOS, and its name some 25.
    const LONGEST: usize = 75;
    let mut problem = None;
    for folder in folders(uid).into_iter().filter(|folder| folder.as_os_str().len() <= LONGEST) {
        // Where there is no runtime directory, the last folder is used.
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => problem = Some(error),
            _ => match check(&folder, uid) {
                Ok(()) => return Ok(folder),
                Err(error) => problem = Some(error),
            },
        }
    }
    Err(problem.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// A socket that this process listens on. Dropping it does not remove it, since a fork may do so.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    pub(super) path: PathBuf,
    /// The device and inode, so that the socket of another process is never removed.
    identity: Option<(u64, u64)>,
    process: u32,
}

impl Socket {
    /// Listens on a socket for this process.
    pub(super) fn bind(rank: u32) -> io::Result<Self> {
        static PROFILERS: AtomicU32 = AtomicU32::new(0);
        let process = std::process::id();
        let folder = create_folder(getuid().as_raw())?;
        // Others may have left theirs.
        listening();
        let profiler = PROFILERS.fetch_add(1, Ordering::Relaxed);
        let path = Listening::at(&folder, process, rank, profiler).path;
        let unfinished = path.with_extension("new");
        let bind = || {
            let _ = fs::remove_file(&unfinished);
            let listener = UnixListener::bind(&unfinished)?;
            fs::set_permissions(&unfinished, Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            fs::rename(&unfinished, &path)?;
            Ok(listener)
        };
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let listener = bind().map_err(at)?;
        let identity = identity(&path);
        Ok(Self { listener, path, identity, process })
    }

    /// Removes the socket, unless this process is a fork of the one that listens.
    pub(super) fn remove(&self) {
        if self.process == std::process::id() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Removes a socket that refuses connections. Returns whether it did.
pub(super) fn remove_if_dead(path: &Path) -> bool {
    let before = identity(path);
    let refused = matches!(UnixStream::connect(path), Err(error) if error.kind() == io::ErrorKind::ConnectionRefused);
    // Another process of the same id may have begun to listen meanwhile.
    refused && identity(path) == before && fs::remove_file(path).is_ok()
}

/// Whether there is a process of this id. In another namespace, it may have another id and be alive all the same.
pub(super) fn is_alive(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Returns the user at the other end of a connection. Where the system does not say, the modes of the folder and the
/// socket have kept others out.
pub(super) fn peer(stream: &UnixStream) -> io::Result<Option<u32>> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return Ok(Some(rustix::net::sockopt::socket_peercred(stream)?.uid.as_raw()));
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    return Ok(None);
}

/// Whether a user may ask the programs of another: its own and root's.
pub(super) fn is_allowed(peer: u32, owner: u32) -> bool {
    peer == owner || peer == 0
}

#[cfg(test)]
mod tests {
    use super::{Listening, check, folders_with, is_alive, is_allowed, remove_if_dead};
    use rustix::process::getuid;
    use std::{
        fs::{self, Permissions},
        os::unix::{
            fs::{PermissionsExt, symlink},
            net::UnixListener,
        },
        path::Path,
    };

    #[test]
    fn names_say_the_process_and_the_rank() {
        let program = Listening::at(Path::new("/run/user/7/kernspan"), 4711, 3, 1);
        assert_eq!(program.path, Path::new("/run/user/7/kernspan/4711-rank3-1.sock"));
        assert_eq!(Listening::parse(&program.path), Some(program));
        for other in ["4711.sock", "x-rank0-0.sock", "1-rank0-0.new", "1-rank0-0-0.sock", "1-0-0.sock"] {
            assert_eq!(Listening::parse(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn sockets_are_looked_for_wherever_programs_put_them() {
        let folders = folders_with(7, Some("/here".as_ref()));
        assert_eq!(folders, ["/here/kernspan", "/run/user/7/kernspan", "/tmp/kernspan-7"].map(Path::new));
        assert_eq!(folders_with(7, Some("relative".as_ref())), folders[1..]);
    }

    #[test]
    fn only_the_owner_and_root_are_let_in() {
        assert!(is_allowed(1000, 1000) && is_allowed(0, 1000));
        assert!(!is_allowed(1001, 1000) && !is_allowed(1000, 0));
    }

    #[test]
    fn folders_that_others_could_have_made_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let (own, link) = (folder.path().join("own"), folder.path().join("link"));
        fs::create_dir(&own).unwrap();
        symlink(&own, &link).unwrap();
        let mode = |mode| fs::set_permissions(&own, Permissions::from_mode(mode)).unwrap();
        let uid = getuid().as_raw();
        let problem = |path, uid| check(path, uid).unwrap_err().to_string();
        mode(0o755);
        assert!(problem(&own, uid).contains("can be entered by others"));
        mode(0o700);
        check(&own, uid).unwrap();
        assert!(problem(&own, uid + 1).contains("belongs to user"));
        assert!(problem(&link, uid).contains("is not a folder"));
    }

    #[test]
    fn only_sockets_that_nobody_listens_on_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1-rank0-0.sock");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(!remove_if_dead(&path) && path.exists());
        drop(listener);
        assert!(remove_if_dead(&path) && !path.exists());
        assert!(!remove_if_dead(&path));
    }

    #[test]
    fn processes_that_are_alive_are_known() {
        assert!(is_alive(std::process::id()));
        // Linux has no ids above 2^22, and signals to negative ones go to groups.
        assert!(!is_alive(0x7fff_fff0) && !is_alive(u32::MAX) && !is_alive(0));
    }
}
