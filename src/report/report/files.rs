//! The files of a run: those that its exporters wrote, and those that were removed again.

use super::Report;
use crate::disk_limit::RemovedFiles;
use std::{collections::BTreeSet, path::PathBuf};

impl Report {
    /// The most files that are kept by name.
    pub const FILES: usize = 100_000;

    /// Returns the files that the exporters wrote; the first [`Self::FILES`] of them, if there are more.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns how many files of old windows were removed, if the files of all windows exceeded
    /// [`disk_limit_bytes`](crate::ProfilerBuilder::disk_limit_bytes).
    pub fn removed_files(&self) -> Option<RemovedFiles> {
        self.removed
    }

    /// Adds files that were written.
    pub(crate) fn add_files(&mut self, files: Vec<PathBuf>) {
        let room = Self::FILES.saturating_sub(self.files.len());
        self.more_files += files.len().saturating_sub(room) as u64;
        self.files.extend(files.into_iter().take(room));
    }

    /// Notes that files of old windows were removed.
    pub(crate) fn remove_files(&mut self, files: &BTreeSet<PathBuf>, removed: RemovedFiles) {
        self.files.retain(|file| !files.contains(file));
        self.removed = Some(removed);
    }
}
