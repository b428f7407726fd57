//! The files of a folder: which are traces, and what the others are.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// The extensions of files read from folders.
pub(super) const ENDINGS: [&str; 3] = [".json", ".json.gz", ".kernspan"];

/// Returns the traces in a folder and its subfolders. What cannot be read is left out.
pub(crate) fn traces_in(folder: &Path) -> Vec<PathBuf> {
    Found::in_folder(folder, true).unwrap_or_default().traces
}

/// Returns whether a file is a trace, by its name.
pub(crate) fn is_trace(path: &Path) -> bool {
    let is_trace = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    // Exported for the Firefox Profiler, next to traces.
    path.to_str().is_some_and(|name| is_trace(name) && !name.ends_with(".firefox.json"))
}

/// The files of a folder.
#[derive(Default)]
pub(super) struct Found {
    /// The traces, in the order of their names.
    pub(super) traces: Vec<PathBuf>,
    /// The number of other files, by extension.
    others: BTreeMap<String, usize>,
    /// The folders that were not searched.
    folders: Vec<PathBuf>,
}

impl Found {
    /// The extensions of files that exporters write but that cannot be read.
    const EXPORTS: [&str; 5] = [".folded", ".html", ".pftrace", ".tfevents", ".xplane.pb"];

    pub(super) fn in_folder(folder: &Path, recursive: bool) -> io::Result<Self> {
        let mut found = Self::default();
        found.add(folder, recursive)?;
        Ok(found)
    }

    fn add(&mut self, folder: &Path, recursive: bool) -> io::Result<()> {
        let entries: io::Result<BTreeSet<PathBuf>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
        for path in entries? {
            if !path.is_dir() {
                match is_trace(&path) {
                    true => self.traces.push(path),
                    false => *self.others.entry(ending(&path)).or_default() += 1,
                }
            } else if !recursive {
                self.folders.push(path);
            } else if !path.is_symlink() {
                // A link to a folder may form a cycle.
                self.add(&path, recursive)?;
            }
        }
        Ok(())
    }

    /// Explains why there are no traces, and what helps.
    pub(super) fn why_nothing(&self, folder: &Path) -> String {
        let name = folder.display();
        let counts: Vec<_> = self.others.iter().map(|(ending, count)| format!("{count} {ending}")).collect();
        let found = if counts.is_empty() { "no files".to_owned() } else { counts.join(", ") };
        let start = format!("no readable traces in {name}: found {found}");
        if self.folders.iter().any(|folder| !traces_in(folder).is_empty()) {
            return format!("{start}; add --recursive to search its subfolders");
        }
        match self.others.keys().any(|ending| Self::EXPORTS.contains(&ending.as_str())) {
            true => format!("{start}; add .export(Chrome::to_dir({:?})) to the profiler", folder.to_string_lossy()),
            false => format!("{start}; expected .json, .json.gz or .kernspan"),
        }
    }
}

/// Returns a file's extension, for messages.
fn ending(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let known = Found::EXPORTS.iter().find(|ending| name.ends_with(**ending) || name.contains(&format!("{ending}.")));
    match (known, path.extension()) {
        (Some(ending), _) => (*ending).to_owned(),
        (None, Some(ending)) => format!(".{}", ending.display()),
        (None, None) => "without an extension".to_owned(),
    }
}
