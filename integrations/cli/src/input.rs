//! The files a command reads.

use crate::{
    fault::{Fault, reason_of, say},
    file::is_same,
    progress::Progress,
};
use kernspan::{
    Report, Trace,
    read::{ReadError, from_reader},
    report::Completeness,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    error::Error,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// The arguments that name files.
#[derive(clap::Args)]
pub(crate) struct Inputs {
    /// Traces, or folders that contain traces; `-` for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Search folders recursively
    #[arg(long, short)]
    recursive: bool,
}

/// The traces of one file.
pub(crate) struct Source {
    /// The file's name, as given or found.
    pub(crate) name: String,
    /// The name without the folder and extension that all files share, if there are several.
    pub(crate) short_name: Option<String>,
    pub(crate) traces: Vec<Trace>,
}

/// All traces that could be read.
pub(crate) struct Read {
    pub(crate) sources: Vec<Source>,
    /// The folder that contains all files, if there are several.
    pub(crate) folder: Option<String>,
    is_complete: bool,
}

impl Read {
    /// Returns all traces, file by file.
    pub(crate) fn traces(&self) -> impl Iterator<Item = &Trace> {
        self.sources.iter().flat_map(|source| &source.traces)
    }

    /// Sets the duration of an unrecorded step in all traces.
    pub(crate) fn set_unrecorded_step(&mut self, time: Duration) {
        let traces = self.sources.iter_mut().flat_map(|source| &mut source.traces);
        traces.for_each(|trace| trace.set_unrecorded_step(time));
    }

    fn shorten_names(&mut self) {
        if self.sources.len() < 2 {
            return;
        }
        let names: Vec<_> = self.sources.iter().map(|source| source.name.clone()).collect();
        let folder = common_prefix(&names).rsplit_once('/').map_or("", |(folder, _)| folder);
        let start = if folder.is_empty() { 0 } else { folder.len() + 1 };
        let is_common = |ending: &&&str| names.iter().all(|name| name.ends_with(**ending));
        let ending = [".pt.trace.json", ".pt.trace.json.gz"].iter().chain(&ENDINGS).find(is_common).unwrap_or(&"");
        for (source, name) in self.sources.iter_mut().zip(&names) {
            source.short_name = Some(name[start..].strip_suffix(ending).unwrap_or(name).to_owned());
        }
        self.folder = Some(folder.to_owned()).filter(|folder| !folder.is_empty());
    }

    /// Returns the report of all traces.
    pub(crate) fn report(&self) -> Report {
        Report::of(self.traces())
    }

    /// Returns the fault that some files could not be read, if so, to be returned once everything else is done.
    pub(crate) fn end(&self) -> Result<(), Fault> {
        if self.is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }
}

/// The extensions of files read from folders.
const ENDINGS: [&str; 3] = [".json", ".json.gz", ".kernspan"];

/// The identity of a window: host, process, rank, number, and the nanosecond it opened.
type WindowKey = (String, u32, u32, u32, u64);

impl Inputs {
    /// Creates the arguments that name these files and folders.
    pub(crate) fn of(files: Vec<PathBuf>, recursive: bool) -> Self {
        Self { files, recursive }
    }

    /// Returns the names of the files and folders, as given.
    pub(crate) fn names(&self) -> String {
        self.files.iter().map(|path| name(path)).collect::<Vec<_>>().join(", ")
    }

    /// Returns the files and folders, as given.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Returns the same arguments with other files.
    pub(crate) fn with_files(&self, files: Vec<PathBuf>) -> Self {
        Self { files, recursive: self.recursive }
    }

    /// Reads the files. Reports on standard error which were skipped, and why.
    pub(crate) fn read(&self) -> Result<Read, Fault> {
        self.read_with(&Progress::new())
    }

    /// Reads the files, sharing a progress bar with others.
    pub(crate) fn read_with(&self, progress: &Progress) -> Result<Read, Fault> {
        let (files, is_complete) = self.find();
        let mut read = Read { sources: Vec::new(), folder: None, is_complete };
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        progress.expect(files.iter().map(size).sum());
        let mut windows: HashMap<WindowKey, String> = HashMap::new();
        each_read(&files, |path, traces| {
            let name = name(path);
            progress.file(&name);
            match traces {
                Ok(traces) if traces.iter().all(is_nothing) => {
                    progress.say(&format!("cannot read {name}: no trace events of a known kind"));
                    read.is_complete = false;
                }
                Ok(mut traces) => {
                    traces.retain(|trace| match windows.insert(window_key(trace), name.clone()) {
                        Some(other) => {
                            progress.say(&format!("skipped {name}: same window as {other}"));
                            false
                        }
                        None => true,
                    });
                    read.sources.push(Source { name, short_name: None, traces });
                }
                Err(error) => {
                    progress.say(&cannot_read(path, &error));
                    read.is_complete = false;
                }
            }
            progress.add(size(path));
        });
        read.sources.retain(|source| !source.traces.is_empty());
        read.shorten_names();
        match read.sources.is_empty() {
            // The reason was already reported.
            true => Err(Fault::Incomplete),
            false => {
                if let Some(warning) = Completeness::of(read.traces()).warning() {
                    progress.say(&format!("warning: {warning}"));
                }
                Ok(read)
            }
        }
    }

    /// Returns the files, including those in folders, and whether all folders could be read. Reports on standard error
    /// which folders have no traces.
    pub(crate) fn find(&self) -> (Vec<PathBuf>, bool) {
        let (mut files, mut is_complete) = (Vec::new(), true);
        for path in &self.files {
            if !is_folder(path) {
                files.push(path.clone());
                continue;
            }
            match Found::in_folder(path, self.recursive) {
                Ok(found) if found.traces.is_empty() => say(&found.why_nothing(path)),
                Ok(found) => files.extend(found.traces),
                Err(error) => {
                    say(&cannot_read(path, &error));
                    is_complete = false;
                }
            }
        }
        (files, is_complete)
    }

    /// Checks that the output file, if any, is not also an input.
    pub(crate) fn check_output(&self, output: Option<&Path>) -> Result<(), Fault> {
        let Some(output) = output else { return Ok(()) };
        for path in &self.files {
            let found = Found::in_folder(path, self.recursive).unwrap_or_default();
            let inputs = match () {
                () if is_folder(path) => found.traces,
                // Where it exists, this link leads to the file that standard input was redirected from.
                () if is_standard_input(path) => vec![PathBuf::from("/dev/stdin")],
                () => vec![path.clone()],
            };
            if let Some(input) = inputs.iter().find(|input| is_same(input, output)) {
                return Err(Fault::Usage(format!(
                    "cannot write {}: it is also read, as {}; give the new file another name",
                    output.display(),
                    input.display()
                )));
            }
        }
        Ok(())
    }
}

/// Returns whether a trace is empty and may not be a trace at all: any JSON list can be read as one.
fn is_nothing(trace: &Trace) -> bool {
    let counts = [trace.spans().len(), trace.work().len(), trace.api_calls().len(), trace.events().len()];
    let more = [trace.steps().len(), trace.counters().len(), trace.allocations().len()];
    trace.metadata().host.is_empty() && counts.iter().chain(&more).all(|&count| count == 0)
}

/// Returns the common prefix of all names.
fn common_prefix(names: &[String]) -> &str {
    let Some((first, others)) = names.split_first() else { return "" };
    let same = |(at, c): &(usize, char)| others.iter().all(|other| other[*at..].starts_with(*c));
    let end = first.char_indices().take_while(same).last().map_or(0, |(at, c)| at + c.len_utf8());
    &first[..end]
}

fn window_key(trace: &Trace) -> WindowKey {
    let metadata = trace.metadata();
    (metadata.host.clone(), metadata.pid, metadata.rank, trace.window(), trace.start().as_unix_nanos())
}

/// Reads files on as many threads as the machine has, and calls `each` with the traces of each file, in order.
fn each_read(files: &[PathBuf], mut each: impl FnMut(&PathBuf, Result<Vec<Trace>, ReadError>)) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(files.len());
    if threads < 2 {
        return files.iter().for_each(|path| each(path, traces(path)));
    }
    let next = AtomicUsize::new(0);
    let (send, receive) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads {
            let (send, next) = (send.clone(), &next);
            scope.spawn(move || {
                let index = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|index| *index < files.len());
                while let Some(index) = index() {
                    if send.send((index, traces(&files[index]))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let (mut waiting, mut due) = (BTreeMap::new(), 0);
        for (index, traces) in receive {
            waiting.insert(index, traces);
            while let Some(traces) = waiting.remove(&due) {
                each(&files[due], traces);
                due += 1;
            }
        }
    });
}

/// Reads the traces of one file; `-` is standard input.
pub(crate) fn traces(path: &Path) -> Result<Vec<Trace>, ReadError> {
    if is_standard_input(path) { from_reader(io::stdin()) } else { kernspan::read(path) }
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

/// Returns the message that a file or folder cannot be read.
pub(crate) fn cannot_read(path: &Path, error: &(dyn Error + 'static)) -> String {
    format!("cannot read {}: {}", name(path), reason_of(error))
}

/// Returns the name of a file, for messages.
pub(crate) fn name(path: &Path) -> String {
    if is_standard_input(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Returns the traces in a folder and its subfolders. What cannot be read is left out.
pub(crate) fn traces_in(folder: &Path) -> Vec<PathBuf> {
    Found::in_folder(folder, true).unwrap_or_default().traces
}

/// Explains why a folder and its subfolders have no traces.
pub(crate) fn why_nothing_in(folder: &Path) -> String {
    match Found::in_folder(folder, true) {
        Ok(found) => found.why_nothing(folder),
        Err(error) => cannot_read(folder, &error),
    }
}

/// Returns whether a file is a trace, by its name.
pub(crate) fn is_trace(path: &Path) -> bool {
    let is_trace = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    // Exported for the Firefox Profiler, next to traces.
    path.to_str().is_some_and(|name| is_trace(name) && !name.ends_with(".firefox.json"))
}

/// The files of a folder.
#[derive(Default)]
struct Found {
    /// The traces, in the order of their names.
    traces: Vec<PathBuf>,
    /// The number of other files, by extension.
    others: BTreeMap<String, usize>,
    /// The folders that were not searched.
    folders: Vec<PathBuf>,
}

impl Found {
    /// The extensions of files that exporters write but that cannot be read.
    const EXPORTS: [&str; 5] = [".folded", ".html", ".pftrace", ".tfevents", ".xplane.pb"];

    fn in_folder(folder: &Path, recursive: bool) -> io::Result<Self> {
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
    fn why_nothing(&self, folder: &Path) -> String {
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
