//! Runs recorded earlier.

use super::{measured::Measured, trial::Trial};
use crate::{
    fault::say,
    input::{self, Inputs},
};
use std::path::{Path, PathBuf};

/// Runs recorded earlier, and the name of the setting that differs between them.
pub(super) struct Recorded<'a> {
    pub(super) name: &'a str,
    pub(super) runs: &'a [PathBuf],
}

impl Recorded<'_> {
    /// Reads the runs.
    pub(super) fn read_all(&self) -> Vec<Trial> {
        self.runs.iter().map(|run| self.read(run)).collect()
    }

    /// Returns the file or folder of each run.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.runs.iter().map(|run| self.split(run).1).collect()
    }

    fn read(&self, run: &Path) -> Trial {
        let (value, path) = self.split(run);
        let files = if path.is_dir() { input::traces_in(&path) } else { vec![path.clone()] };
        let result = match files.is_empty() {
            true => Err(input::why_nothing_in(&path)),
            false => Inputs::of(files, false).read().map_err(|_| "none of its traces could be read".to_owned()),
        };
        let result = result.and_then(|read| Measured::of(&read));
        if let Err(problem) = &result {
            say(&format!("{}={value}: {problem}", self.name));
        }
        Trial::new(value, result)
    }

    /// Returns the value of a run, and its path: `32=runs/first`, `runs/32` or `runs/BATCH_SIZE=32`.
    fn split(&self, run: &Path) -> (String, PathBuf) {
        if let (false, Some((value, path))) = (run.exists(), run.to_str().and_then(|text| text.split_once('='))) {
            return (value.to_owned(), path.into());
        }
        let last = run.file_name().map_or_else(|| run.display().to_string(), |name| name.display().to_string());
        let value = last.strip_prefix(self.name).and_then(|rest| rest.strip_prefix('='));
        (value.unwrap_or(&last).to_owned(), run.to_owned())
    }
}
