//! A periodic report as JSON lines, appended to a file.

use super::{RequestGroup, Requests, RequestsOfKind, ServiceLevel};
use crate::{
    file::FileError,
    trace::{Metadata, Timestamp},
};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::PathBuf,
    time::Duration,
};

/// A periodic report of requests, as JSON lines that are appended to a file: rates, percentiles, failures, service
/// levels, the peak of the process's memory, and versions.
///
/// A file that exists is continued, never replaced. A line that an earlier process could not finish is left as it is,
/// and the next one begins on a line of its own. A line that cannot be written, as the disk is full, is reported as a
/// failure of the run, and the next one is tried again.
///
/// ```
/// use kernspan::{Profiler, serving::RequestLog};
/// use std::time::Duration;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let file = folder.path().join("requests.jsonl");
/// let (layer, profiler) = Profiler::builder()
///     .request_on("request")
///     .request_log(RequestLog::to_file(&file).every(Duration::from_secs(60)))
///     .metadata("model", "llama-3.1-8b")
///     .build()?;
/// # drop(layer);
/// profiler.finish()?; // Writes the last line, which may be of a shorter time.
/// # assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 1);
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a log does nothing until it is given to `ProfilerBuilder::request_log`"]
pub struct RequestLog {
    path: PathBuf,
    every: Duration,
}

impl RequestLog {
    /// The default of [`every`](Self::every).
    pub const EVERY: Duration = Duration::from_secs(60);
    /// The least time between two lines.
    pub const LEAST: Duration = Duration::from_millis(100);

    /// Appends to this file.
    pub fn to_file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), every: Self::EVERY }
    }

    /// Sets the time between two lines. By default, [`Self::EVERY`], a minute.
    pub fn every(mut self, time: Duration) -> Self {
        self.every = time;
        self
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if self.every < Self::LEAST {
            return Err(format!("a line every {:?} was asked for: the least is {:?}", self.every, Self::LEAST));
        }
        // So that a mistake is found before the service begins.
        self.open().map(drop).map_err(|error| format!("cannot append to {}: {error}", self.path.display()))
    }

    fn open(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        OpenOptions::new().read(true).append(true).create(true).open(&self.path)
    }
}

/// The log of a run, and what the last line said.
#[derive(Debug)]
pub(super) struct RequestLogWriter {
    log: RequestLog,
    metadata: Metadata,
    /// The requests at the end of the last line.
    before: Requests,
}

/// A line of the log. Counts and percentiles are those of its time, not of the whole run.
#[derive(Serialize)]
struct LogLine<'a> {
    /// The end of the time, in seconds since 1970 (UTC).
    time: f64,
    /// The length of the time in seconds.
    seconds: f64,
    kernspan: &'static str,
    program: &'a str,
    host: &'a str,
    pid: u32,
    rank: u32,
    metadata: &'a BTreeMap<String, String>,
    /// The most resident memory of the process so far, in bytes, where it is known.
    peak_memory: Option<u64>,
    requests: Vec<KindLine<'a>>,
    service_levels: Vec<LevelLine<'a>>,
}

/// An objective: over its window and the run, and the requests of this time alone.
#[derive(Serialize)]
struct LevelLine<'a> {
    #[serde(flatten)]
    level: &'a ServiceLevel,
    line: OutcomesOfLine,
}

/// The requests of this time, by whether they met the objective.
#[derive(Serialize)]
struct OutcomesOfLine {
    good: u64,
    bad: u64,
}

#[derive(Serialize)]
struct KindLine<'a> {
    name: &'a str,
    in_flight: u64,
    peak_in_flight: u64,
    total: RequestGroup,
    groups: Vec<RequestGroup>,
}

impl RequestLogWriter {
    pub(super) fn new(log: RequestLog, metadata: Metadata) -> Self {
        Self { log, metadata, before: Requests::default() }
    }

    /// Whether a line is due at this time of the run.
    pub(super) fn is_due(&self, elapsed: Duration) -> bool {
        elapsed.saturating_sub(self.before.elapsed) >= self.log.every
    }

    pub(super) fn path(&self) -> PathBuf {
        self.log.path.clone()
    }

    /// Appends a line about the time since the last one.
    pub(super) fn write(&mut self, requests: Requests) -> Result<(), FileError> {
        let elapsed = requests.elapsed.saturating_sub(self.before.elapsed);
        let kinds = requests.kinds.iter().map(|kind| kind_line(kind, self.before.kind(&kind.name), elapsed));
        // Both are in the order in which the builder was given them.
        let before = self.before.service_levels.iter().map(Some).chain(std::iter::repeat(None));
        let levels = requests.service_levels.iter().zip(before).map(|(level, before)| level_line(level, before));
        let metadata = &self.metadata;
        let line = LogLine {
            time: Timestamp::now().as_unix_nanos() as f64 / 1e9,
            seconds: elapsed.as_secs_f64(),
            kernspan: env!("CARGO_PKG_VERSION"),
            program: &metadata.process,
            host: &metadata.host,
            pid: metadata.pid,
            rank: metadata.rank,
            metadata: &metadata.user,
            peak_memory: peak_memory(),
            requests: kinds.collect(),
            service_levels: levels.collect(),
        };
        let written = serde_json::to_vec(&line).map_err(io::Error::from).and_then(|line| self.append(line));
        // A line that was not written is part of the next one.
        written.map_err(FileError::at(&self.log.path))?;
        self.before = requests;
        Ok(())
    }

    fn append(&self, mut line: Vec<u8>) -> io::Result<()> {
        let mut file = self.log.open()?;
        // Ours or another process's, which may have ended in the middle of it.
        if file.seek(SeekFrom::End(-1)).is_ok() {
            let mut last = [0];
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                line.insert(0, b'\n');
            }
        }
        line.push(b'\n');
        // In one call, so that lines of several processes are not mixed.
        file.write_all(&line)
    }
}

fn kind_line<'a>(kind: &'a RequestsOfKind, before: Option<&RequestsOfKind>, elapsed: Duration) -> KindLine<'a> {
    let since = |group: &RequestGroup, before: Option<&RequestGroup>| match before {
        Some(before) => group.since(before, elapsed),
        None => group.since(&RequestGroup::default(), elapsed),
    };
    let groups = kind.groups.iter().map(|group| {
        let same = |old: &&RequestGroup| (old.is_other, &old.labels) == (group.is_other, &group.labels);
        since(group, before.and_then(|before| before.groups.iter().find(same)))
    });
    KindLine {
        name: &kind.name,
        in_flight: kind.in_flight,
        peak_in_flight: kind.peak_in_flight,
        total: since(&kind.total, before.map(|before| &before.total)),
        groups: groups.filter(|group| group.count() > 0).collect(),
    }
}

fn level_line<'a>(level: &'a ServiceLevel, before: Option<&ServiceLevel>) -> LevelLine<'a> {
    let (requests, bad) = before.map_or((0, 0), |before| (before.requests_ever, before.bad_ever));
    let bad = level.bad_ever.saturating_sub(bad);
    let good = level.requests_ever.saturating_sub(requests).saturating_sub(bad);
    LevelLine { level, line: OutcomesOfLine { good, bad } }
}

/// Returns the most resident memory of this process so far, where it is known.
fn peak_memory() -> Option<u64> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?.trim().strip_suffix(" kB")?;
    Some(kib.parse::<u64>().ok()? * 1024)
}
