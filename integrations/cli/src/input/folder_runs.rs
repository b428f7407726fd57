//! The runs of a folder: which files belong together. docs/runs.md has the rules.

use kernspan::read::Origin;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

/// A run in a folder: the windows of one process, or of all ranks.
pub(crate) struct FolderRun {
    /// The name, which no other run of the folder has: `host_pid`, or that of its file.
    pub(crate) name: String,
    /// The processes, in the order of their ranks.
    processes: Vec<Process>,
}

/// The windows of a process, in the order of their starts.
struct Process {
    host: String,
    pid: u32,
    rank: u32,
    world_size: u32,
    run: Option<String>,
    windows: Vec<(PathBuf, Origin)>,
}

/// The time between the first windows of ranks within which they may be of one run, if the files do not name it. It is
/// NCCL's timeout in PyTorch: a rank that comes later ends the run of the others.
const RANKS_TOGETHER: Duration = Duration::from_secs(600);

impl FolderRun {
    /// Groups files by their runs, and returns these in the order of their starts.
    pub(crate) fn group(files: Vec<(PathBuf, Origin)>) -> Vec<Self> {
        let mut runs: Vec<Vec<Process>> = Vec::new();
        for process in Process::all(files) {
            let known = runs.iter_mut().rev().find(|run| process.is_of(run));
            match known {
                Some(run) => run.push(process),
                None => runs.push(vec![process]),
            }
        }
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        let named = runs.into_iter().map(|mut processes| {
            processes.sort_by_key(|process| process.rank);
            let name = name(&processes);
            let turn = names.entry(name.clone()).or_insert(0);
            *turn += 1;
            Self { name: if *turn > 1 { format!("{name}-{turn}") } else { name }, processes }
        });
        named.collect()
    }

    /// Returns the files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.processes.iter().flat_map(|process| process.windows.iter().map(|(path, _)| path))
    }

    /// Returns whether a user means this run: by its name, the id of a process, or the name of a file.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let has_file = |path: &PathBuf| stem(path) == name || path.file_name().is_some_and(|file| file == name);
        let has_pid = |process: &Process| process.pid > 0 && process.pid.to_string() == name;
        self.name == name || self.processes.iter().any(has_pid) || self.files().any(has_file)
    }

    /// Returns the name, the number of ranks, and the start: `vm_6486, started 2026-11-19 14:03:12 UTC`.
    pub(crate) fn described(&self) -> String {
        let ranks = match self.processes.len() {
            1 => String::new(),
            ranks => format!(", {ranks} ranks"),
        };
        let first = self.processes.iter().map(Process::first).min_by_key(|origin| origin.start);
        let started = first.map(|origin| format!(", started {}", origin.started())).unwrap_or_default();
        format!("{}{ranks}{started}", self.name)
    }
}

impl Process {
    /// Returns the processes of files, in the order of their starts.
    fn all(files: Vec<(PathBuf, Origin)>) -> Vec<Self> {
        let mut by_id: BTreeMap<(String, u32, u32), Vec<(PathBuf, Origin)>> = BTreeMap::new();
        for (path, mut origin) in files {
            let metadata = &mut origin.metadata;
            // PyTorch writes the host into the name of the file only.
            if let Some((host, pid)) = worker(&path).filter(|(_, pid)| [0, *pid].contains(&metadata.pid))
                && metadata.host.is_empty()
            {
                (metadata.host, metadata.pid) = (host.to_owned(), pid);
            }
            let id = (metadata.host.clone(), metadata.pid, metadata.rank);
            by_id.entry(id).or_default().push((path, origin));
        }
        let mut processes = Vec::new();
        for ((host, pid, rank), mut windows) in by_id {
            windows.sort_by_key(|(_, origin)| (origin.start, origin.window));
            let of_one = windows.chunk_by(|last, next| follows(&next.1, &last.1));
            processes.extend(of_one.map(|windows| {
                let metadata = &windows[0].1.metadata;
                let (world_size, run) = (metadata.world_size, metadata.run.clone());
                Self { host: host.clone(), pid, rank, world_size, run, windows: windows.to_vec() }
            }));
        }
        processes.sort_by_key(|process| process.first().start);
        processes
    }

    fn first(&self) -> &Origin {
        &self.windows[0].1
    }

    /// Returns whether the process is a rank of a run that has other ranks.
    fn is_of(&self, run: &[Self]) -> bool {
        let is_near = |other: &Self| self.first().start.since(other.first().start) <= RANKS_TOGETHER;
        let is_same = |other: &Self| match (&self.run, &other.run) {
            (Some(run), Some(other)) => run == other,
            _ => run.first().is_some_and(is_near),
        };
        self.world_size > 1
            && run.iter().all(|other| self.world_size == other.world_size && self.rank != other.rank && is_same(other))
    }
}

/// Returns whether a window may be the next of the process that recorded another, or a copy of it. Numbers of windows
/// and steps only grow, so if they do not, another process had the same id, as the first one of each container has.
fn follows(next: &Origin, last: &Origin) -> bool {
    let is_copy =
        (next.window, next.start) == (last.window, last.start) || (next.step.is_some() && next.step == last.step);
    let has_later_window = next.window.zip(last.window).is_none_or(|(next, last)| next > last);
    let has_later_step = next.step.zip(last.step).is_none_or(|((next, _), (last, _))| next > last);
    is_copy || (has_later_window && has_later_step)
}

/// Returns the name of a run: the process of its first file, or the file if it is called otherwise.
fn name(processes: &[Process]) -> String {
    let Some(first) = processes.first() else { return String::new() };
    let (path, _) = &first.windows[0];
    let is_one_file = processes.len() == 1 && first.windows.len() == 1;
    match worker(path) {
        Some((host, pid)) => format!("{host}_{pid}"),
        None if first.host.is_empty() || is_one_file => stem(path).to_owned(),
        None => format!("{}_{}", first.host, first.pid),
    }
}

/// Returns the host and the process id in the name of a file that a profiler has named: `vm_6486.17.pt.trace.json`.
fn worker(path: &Path) -> Option<(&str, u32)> {
    let (worker, time) = stem(path).rsplit_once('.')?;
    let (host, pid) = worker.rsplit_once('_')?;
    time.parse::<u64>().ok()?;
    Some((host, pid.parse().ok()?))
}

/// Returns the name of a file without the endings of traces.
fn stem(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = [".gz", ".json", ".kernspan", ".trace", ".pt"];
    stem.iter().fold(name, |name, ending| name.strip_suffix(ending).unwrap_or(name))
}

#[cfg(test)]
mod tests;
