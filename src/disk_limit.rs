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
        let (own, others): (Vec<_>, Vec<_>) = files.iter().partition(|path| new.contains(path));
        // A file that an exporter writes again for a later window does not belong to one window alone.
        for window in self.windows.iter_mut().filter(|_| !others.is_empty()) {
            window.retain(|(path, _)| !others.contains(&path));
        }
        let Some(window) = self.windows.back_mut() else { return };
        window.extend(own.into_iter().map(|path| (path.clone(), fs::metadata(path).map_or(0, |file| file.len()))));
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

#[cfg(test)]
mod tests {
    use super::{DiskLimit, RemovedFiles};
    use crate::file;
    use std::{fs, io::Write, path::Path};

    /// Exports a window: a new file of eight bytes, and files that were there before.
    fn export(limit: &mut DiskLimit, folder: &Path, window: u32, others: &[&Path]) -> Option<RemovedFiles> {
        limit.begin_window();
        let name = |turn| folder.join(format!("window_{window}_{turn}"));
        let new = file::write_first_free(name, |out| out.write_all(b"8 bytes!")).unwrap();
        limit.add(&others.iter().map(|path| path.to_path_buf()).chain([new]).collect::<Vec<_>>());
        limit.end_window().map(|(_, removed)| removed)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_new_files_of_old_windows_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [mine, taken] = ["mine", "window_0_0"].map(|name| folder.path().join(name));
        fs::write(&mine, "mine, and larger than any limit").unwrap();
        fs::write(&taken, "mine").unwrap();
        let mut limit = DiskLimit::new(20);
        let removed = [0, 1, 2, 3].map(|window| export(&mut limit, folder.path(), window, &[&mine]));
        assert_eq!(names(folder.path()), ["mine", "window_0_0", "window_2_0", "window_3_0"]);
        assert_eq!(removed[..2], [None, None]);
        assert_eq!(removed[3], Some(RemovedFiles { windows: 2, bytes: 16, limit_bytes: 20 }));
        assert_eq!(
            removed[2].unwrap().to_string(),
            "removed the files of the oldest window (8 B): disk_limit_bytes is 20 B"
        );
    }

    #[test]
    fn a_file_of_several_windows_stays() {
        let folder = tempfile::tempdir().unwrap();
        let mut limit = DiskLimit::new(1);
        export(&mut limit, folder.path(), 0, &[]);
        let shared = folder.path().join("window_0_0");
        let removed = [1, 2].map(|window| export(&mut limit, folder.path(), window, &[&shared]));
        assert_eq!(names(folder.path()), ["window_0_0", "window_2_0"]);
        assert_eq!((removed[0], removed[1].unwrap().windows), (None, 1));
    }
}
