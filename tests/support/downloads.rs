//! Folders for downloads of tests, which several processes and several clones may share. Tests of the library use them,
//! too.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
};

/// Returns a folder that `make` has filled, in this process or in another before it; `None` if `make` cannot.
///
/// It is in the folder that `KERNSPAN_CONSUMERS` names, by default `target/tmp`. Its name has a digest of `wanted`, so
/// that it is never out of date. A folder that was left unfinished is made again.
pub fn folder(name: &str, wanted: &[u8], make: impl FnOnce(&Path) -> Option<()>) -> Option<PathBuf> {
    let all = env::var_os("KERNSPAN_CONSUMERS").map_or_else(|| target().join("tmp"), PathBuf::from);
    fs::create_dir_all(&all).unwrap();
    let name = format!("{name}-{:016x}", digest(wanted));
    let _alone = lock(&all.join(format!("{name}.lock")));
    let folder = all.join(name);
    let whole = folder.join("whole.txt");
    if fs::read(&whole).is_ok_and(|made_of| made_of == wanted) {
        return Some(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    make(&folder)?;
    fs::write(&whole, wanted).unwrap();
    Some(folder)
}

/// Locks a file, and waits until no other process has it locked. The lock ends when the file is closed.
fn lock(path: &Path) -> File {
    let file = File::options().create(true).append(true).open(path).unwrap();
    #[cfg(unix)]
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    file
}

/// Returns the FNV-1a hash, which is the same in every release of Rust.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns Cargo's target folder, found from the path of this test. Cargo gives its path to integration tests only.
fn target() -> PathBuf {
    env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}
