//! Files below `/proc` and `/sys`.

use std::{
    fs,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The folder that has `proc` and `sys`: `/`, or a tree that a test has made.
#[derive(Debug)]
pub(super) struct SystemFiles {
    root: PathBuf,
}

impl SystemFiles {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns what is made of a file, if it can be read and makes sense.
    pub(super) fn parse<T, E>(&self, path: &str, parse: impl FnOnce(&[u8]) -> Result<T, E>) -> Option<T> {
        parse(&fs::read(self.root.join(path)).ok()?).ok()
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Returns the number that is all of a file.
    pub(super) fn number<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path)?.trim().parse().ok()
    }

    /// Returns the number after a word, in a file of such lines.
    pub(super) fn entry(&self, path: &str, key: &str) -> Option<u64> {
        let text = self.text(path)?;
        text.lines().find_map(|line| line.strip_prefix(key)?.trim_start_matches(':').trim().parse().ok())
    }

    /// Returns the names in a folder, in order; none if it does not exist.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// Whether a file exists that may not be read.
    pub(super) fn is_forbidden(&self, path: &str) -> bool {
        fs::read(self.root.join(path)).is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
    }
}
