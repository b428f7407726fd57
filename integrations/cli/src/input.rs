//! The files that a command reads.

use crate::{
    fault::{Fault, say},
    progress::Progress,
};
use kernspan::{
    Report, Trace,
    read::{ReadError, from_bytes},
};
use std::{
    collections::{BTreeSet, HashMap},
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// The arguments that name files.
#[derive(clap::Args)]
pub(crate) struct Inputs {
    /// Traces, or folders of them; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Read the folders in folders, too
    #[arg(long, short)]
    recursive: bool,
}

/// The traces of one file.
pub(crate) struct Source {
    /// The file's name, as it was given or found.
    pub(crate) name: String,
    pub(crate) traces: Vec<Trace>,
}

/// All traces that could be read.
pub(crate) struct Read {
    pub(crate) sources: Vec<Source>,
    is_complete: bool,
}

impl Read {
    /// Returns all traces, file by file.
    pub(crate) fn traces(&self) -> impl Iterator<Item = &Trace> {
        self.sources.iter().flat_map(|source| &source.traces)
    }

    /// Returns the report of all traces.
    pub(crate) fn report(&self) -> Report {
        Report::of(self.traces())
    }

    /// Returns the fault that some files could not be read, if so, to be returned when all else is done.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        if self.is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }
}

/// The endings of files that are read from folders.
const ENDINGS: [&str; 3] = [".json", ".json.gz", ".kernspan"];

/// The identity of a window: host, process, number, and the nanosecond at which it opened.
type WindowKey = (String, u32, u32, u64);

impl Inputs {
    /// Makes the arguments that name these files and folders.
    pub(crate) fn of(files: Vec<PathBuf>, recursive: bool) -> Self {
        Self { files, recursive }
    }

    /// Returns the names of the files and folders, as they were given.
    pub(crate) fn names(&self) -> String {
        self.files.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ")
    }

    /// Returns the files and folders, as they were given.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the same with other files.
    pub(crate) fn with_files(&self, files: Vec<PathBuf>) -> Self {
        Self { files, recursive: self.recursive }
    }

    /// Reads the files. Says on standard error which of them were left out, and why.
    pub(crate) fn read(&self) -> Result<Read, Fault> {
        self.read_with(&Progress::new())
    }

    /// Reads the files, with a progress bar that others may use, too.
    pub(crate) fn read_with(&self, progress: &Progress) -> Result<Read, Fault> {
        let mut read = Read { sources: Vec::new(), is_complete: true };
        let mut files = Vec::new();
        for path in &self.files {
            if is_folder(path) {
                if let Err(error) = find(path, self.recursive, &mut files) {
                    say(&format!("{}: cannot be read: {error}", path.display()));
                    read.is_complete = false;
                }
            } else {
                files.push(path.clone());
            }
        }
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        progress.expect(files.iter().map(size).sum());
        let mut windows: HashMap<WindowKey, String> = HashMap::new();
        for path in &files {
            let name = name(path);
            progress.file(&name);
            match traces(path) {
                Ok(traces) if traces.iter().all(is_nothing) => {
                    progress.say(&format!("{name}: is no trace: it has no event of a known kind"));
                    read.is_complete = false;
                }
                Ok(mut traces) => {
                    traces.retain(|trace| match windows.insert(window_key(trace), name.clone()) {
                        Some(other) => {
                            progress.say(&format!("{name}: left out, since it has the same window as {other}"));
                            false
                        }
                        None => true,
                    });
                    read.sources.push(Source { name, traces });
                }
                Err(error) => {
                    progress.say(&format!("{name}: {error}"));
                    read.is_complete = false;
                }
            }
            progress.add(size(path));
        }
        read.sources.retain(|source| !source.traces.is_empty());
        match read.sources.is_empty() {
            true if read.is_complete => Err(Fault::Failed("no traces were found".to_owned())),
            true => Err(Fault::Incomplete),
            false => Ok(read),
        }
    }
}

/// Returns whether a trace is empty, and not even known to be one: any list in JSON can be read as a trace.
fn is_nothing(trace: &Trace) -> bool {
    let counts = [trace.spans().len(), trace.work().len(), trace.api_calls().len(), trace.events().len()];
    let more = [trace.steps().len(), trace.counters().len(), trace.allocations().len()];
    trace.metadata().host.is_empty() && counts.iter().chain(&more).all(|&count| count == 0)
}

fn window_key(trace: &Trace) -> WindowKey {
    let metadata = trace.metadata();
    (metadata.host.clone(), metadata.pid, trace.window(), trace.start().as_unix_nanos())
}

/// Reads the traces of one file; `-` is standard input.
pub(crate) fn traces(path: &Path) -> Result<Vec<Trace>, ReadError> {
    // A file is mapped, which takes less memory and time than a copy of it.
    if is_standard_input(path) { from_bytes(&bytes(path)?) } else { kernspan::read(path) }
}

/// Reads the bytes of one file; `-` is standard input.
pub(crate) fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !is_standard_input(path) {
        return fs::read(path);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_standard_input(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn is_folder(path: &Path) -> bool {
    !is_standard_input(path) && path.is_dir()
}

/// Returns the name of a file, for messages.
pub(crate) fn name(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Returns the traces in a folder and in the folders in it. What cannot be read is left out.
pub(crate) fn traces_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries: BTreeSet<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let mut found = Vec::new();
    for path in entries {
        // A link to a folder may lead in a circle.
        if !path.is_dir() {
            found.extend(is_trace(&path).then_some(path));
        } else if !path.is_symlink() {
            found.extend(traces_in(&path));
        }
    }
    found
}

fn is_trace(path: &Path) -> bool {
    path.to_str().is_some_and(|name| ENDINGS.iter().any(|ending| name.ends_with(ending)))
}

/// Adds the traces in a folder, in the order of their names, and says which other files are in it.
fn find(folder: &Path, recursive: bool, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let entries: io::Result<BTreeSet<PathBuf>> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect();
    let (mut others, mut endings) = (0, BTreeSet::new());
    for path in entries? {
        if path.is_dir() {
            // A link to a folder may lead in a circle.
            if recursive && !path.is_symlink() {
                find(&path, recursive, found)?;
            }
        } else if is_trace(&path) {
            found.push(path);
        } else {
            others += 1;
            endings.insert(path.extension().map_or("none".to_owned(), |it| format!(".{}", it.display())));
        }
    }
    if others > 0 {
        let (files, endings) = (if others == 1 { "file" } else { "files" }, Vec::from_iter(endings).join(", "));
        say(&format!("{}: left out {others} {files} with other endings: {endings}", folder.display()));
    }
    Ok(())
}
