//! The files a command reads.

mod each_read;
mod folder_runs;
mod found;

pub(crate) use self::{
    folder_runs::FolderRun,
    found::{is_trace, traces_in},
};

use self::{
    each_read::each_read,
    found::{ENDINGS, Found},
};
use crate::{
    fault::{Fault, reason_of, say},
    file::is_same,
    progress::Progress,
};
use kernspan::{
    Report, Trace,
    read::{ReadError, from_reader, origin},
    report::Completeness,
};
use std::{
    collections::{BTreeSet, HashMap},
    error::Error,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
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
    /// Read all runs of a folder [default: the newest]
    #[arg(long, conflicts_with = "run")]
    all: bool,
    /// Read this run of a folder: its name, a process id, or a file's name
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
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

/// The identity of a window: host, process, rank, number, and the nanosecond it opened.
type WindowKey = (String, u32, u32, u32, u64);

impl Inputs {
    /// Creates the arguments that name these files and folders.
    pub(crate) fn of(files: Vec<PathBuf>, recursive: bool) -> Self {
        Self { files, recursive, all: false, run: None }
    }

    /// Sets whether all runs of a folder are read, rather than the newest.
    pub(crate) fn all_runs(self, all: bool) -> Self {
        Self { all, ..self }
    }

    /// Sets the name of the run of a folder that is read, rather than the newest.
    pub(crate) fn named_run(self, run: Option<String>) -> Self {
        Self { run, ..self }
    }

    /// Returns the name of the run that is asked for.
    pub(crate) fn run(&self) -> Option<&str> {
        self.run.as_deref()
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
        Self { files, recursive: self.recursive, all: self.all, run: self.run.clone() }
    }

    /// Reads the files. Reports on standard error which were skipped, and why.
    pub(crate) fn read(&self) -> Result<Read, Fault> {
        self.read_with(&Progress::new())
    }

    /// Reads the files, sharing a progress bar with others.
    pub(crate) fn read_with(&self, progress: &Progress) -> Result<Read, Fault> {
        let (files, is_complete) = self.find()?;
        let mut read = Read { sources: Vec::new(), folder: None, is_complete };
        let size = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        progress.expect(files.iter().map(size).sum());
        let mut windows: HashMap<WindowKey, String> = HashMap::new();
        each_read(&files, traces, |path, traces| {
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

    /// Returns the files, including those of the chosen run in each folder, and whether all folders could be read.
    /// Reports on standard error which runs were not chosen, and which folders have no traces.
    pub(crate) fn find(&self) -> Result<(Vec<PathBuf>, bool), Fault> {
        let (mut files, mut is_complete) = (Vec::new(), true);
        let mut others = Vec::new();
        for path in &self.files {
            if !is_folder(path) {
                files.push(path.clone());
                continue;
            }
            match Found::in_folder(path, self.recursive) {
                Ok(found) if found.traces.is_empty() => say(&found.why_nothing(path)),
                Ok(found) => match self.chosen(path, found.traces) {
                    Ok(chosen) => files.extend(chosen),
                    Err(runs) => others.extend(runs),
                },
                Err(error) => {
                    say(&cannot_read(path, &error));
                    is_complete = false;
                }
            }
        }
        match &self.run {
            Some(run) if !self.files.iter().any(|path| is_folder(path)) => {
                Err(Fault::Usage(format!("--run {run} needs a folder, to choose one of its runs")))
            }
            Some(run) if files.is_empty() && !others.is_empty() => {
                let others: Vec<_> = others.iter().map(|run| format!("\n  {}", run.described())).collect();
                Err(Fault::Failed(format!("no run in {} is called {run}; there are:{}", self.names(), others.concat())))
            }
            _ => Ok((files, is_complete)),
        }
    }

    /// Returns the files of the chosen run, those of earlier runs first if all are; or all runs if none is.
    fn chosen(&self, folder: &Path, files: Vec<PathBuf>) -> Result<Vec<PathBuf>, Vec<FolderRun>> {
        let (mut runs, unknown) = runs_of(files);
        let chosen = match &self.run {
            Some(name) => runs.iter().rposition(|run| run.is_called(name)),
            None => runs.len().checked_sub(1),
        };
        let Some(chosen) = chosen else { return if runs.is_empty() { Ok(unknown) } else { Err(runs) } };
        if !self.all {
            if self.run.is_none()
                && let [others @ .., newest] = runs.as_slice()
                && !others.is_empty()
            {
                say(&self.why_newest(folder, newest, others));
            }
            runs = vec![runs.swap_remove(chosen)];
        }
        let mut files: Vec<_> = runs.iter().flat_map(|run| in_order(run.files())).collect();
        // That they cannot be read is reported when they are.
        files.extend(unknown);
        Ok(files)
    }

    /// Says that only the newest run is read, and how to read others.
    fn why_newest(&self, folder: &Path, newest: &FolderRun, others: &[FolderRun]) -> String {
        let (folder, runs) = (folder.display(), others.len() + 1);
        let recursive = if self.recursive { "--recursive " } else { "" };
        let start = format!("{folder} holds {runs} runs; reading the newest ({})", newest.described());
        let (others, which) = match others {
            [other] => (format!("--run {} reads the other, --all both", other.name), "them"),
            others => {
                let names: Vec<_> = others.iter().rev().take(3).map(|run| run.name.as_str()).collect();
                (format!("--run NAME reads another ({}, …), --all all", names.join(", ")), "the last two")
            }
        };
        format!("{start}. {others}; to compare {which}: kernspan diff {recursive}{folder}")
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

/// Returns the paths in the order of their names.
fn in_order<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> BTreeSet<PathBuf> {
    paths.cloned().collect()
}

/// Groups files by their runs, the one that started last at the end. Returns also those whose run is not known, as they
/// cannot be read. Files that were merged from others are left out: their events would count twice.
pub(crate) fn runs_of(files: Vec<PathBuf>) -> (Vec<FolderRun>, Vec<PathBuf>) {
    let (mut known, mut merged, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    each_read(
        &files,
        |path| origin(path),
        |path, origin| match origin {
            Ok(origin) if origin.is_merged => merged.push((path.clone(), origin)),
            Ok(origin) => known.push((path.clone(), origin)),
            Err(_) => unknown.push(path.clone()),
        },
    );
    if known.is_empty() {
        known = merged;
    } else {
        merged.iter().for_each(|(path, _)| say(&format!("skipped {}: merged from other files", path.display())));
    }
    (FolderRun::group(known), unknown)
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

/// Explains why a folder and its subfolders have no traces.
pub(crate) fn why_nothing_in(folder: &Path) -> String {
    match Found::in_folder(folder, true) {
        Ok(found) => found.why_nothing(folder),
        Err(error) => cannot_read(folder, &error),
    }
}
