//! The limit on the bytes that the files of windows take on disk.

use crate::{file, units};
use std::{
    collections::{BTreeSet, VecDeque},
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// Removes the files of the oldest windows when those of all windows exceed a limit.
#[derive(Debug)]
pub(crate) struct DiskLimit {
    limit: u64,
    /// The files of windows with their sizes, oldest first. The last window is the one being exported.
    windows: VecDeque<Vec<(PathBuf, u64)>>,
    removed: RemovedFiles,
}

/// Files of old windows that were removed: see [`disk_limit_bytes`](crate::ProfilerBuilder::disk_limit_bytes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct RemovedFiles {
    /// The number of windows whose files were removed.
    pub windows: u64,
    /// The number of bytes that these files had.
    pub bytes: u64,
    /// The limit that was set.
    pub limit_bytes: u64,
}

impl DiskLimit {
    pub(crate) fn new(limit: u64) -> Self {
        let removed = RemovedFiles { limit_bytes: limit, ..RemovedFiles::default() };
        Self { limit, windows: VecDeque::new(), removed }
    }

    /// Begins a window: from now on, new files of this thread are noted.
    pub(crate) fn begin_window(&mut self) {
        file::note_new_files();
        self.windows.push_back(Vec::new());
    }

    /// Adds files that an exporter wrote for the window. Only those that did not exist before are counted.
    pub(crate) fn add(&mut self, files: &[PathBuf]) {
        let new = file::take_new_files();
        let Some(window) = self.windows.back_mut() else { return };
        let own = files.iter().filter(|path| new.contains(path));
        window.extend(own.map(|path| (path.clone(), fs::metadata(path).map_or(0, |file| file.len()))));
    }

    /// Ends the window, and removes the files of the oldest ones while all exceed the limit. Returns the removed files,
    /// and the sum of all that were removed so far.
    pub(crate) fn end_window(&mut self) -> Option<(BTreeSet<PathBuf>, RemovedFiles)> {
        let mut total: u64 = self.windows.iter().flatten().map(|(_, size)| size).sum();
        let mut gone = BTreeSet::new();
        while total > self.limit && self.windows.len() > 1 {
            let files = self.windows.pop_front().unwrap_or_default();
            let before = gone.len();
            for (path, size) in files {
                total -= size;
                match remove(&path) {
                    Ok(()) => {
                        self.removed.bytes += size;
                        gone.insert(path);
                    }
                    Err(error) => tracing::warn!("kernspan: cannot remove {}: {error}", path.display()),
                }
            }
            self.removed.windows += u64::from(gone.len() > before);
        }
        (!gone.is_empty()).then_some((gone, self.removed))
    }
}

/// Removes a file, and its folder if that was made for it.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // XProf shows a profile for each folder here, even an empty one. One with other files stays.
    if let Some(folder) =
        path.parent().filter(|folder| folder.parent().is_some_and(|it| it.ends_with("plugins/profile")))
    {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

impl fmt::Display for RemovedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { windows, bytes, limit_bytes } = *self;
        let of = if windows == 1 { "the oldest window".to_owned() } else { format!("the {windows} oldest windows") };
        let [bytes, limit] = [bytes, limit_bytes].map(units::bytes);
        write!(f, "removed the files of {of} ({bytes}): disk_limit_bytes is {limit}")
    }
}
