//! A client's connection: reads its requests, and answers them.

use super::{
    Control, Progress, RecordRequest, Requested,
    live::LiveRun,
    protocol::{
        Live, MAX_REQUEST, RecordProgress, RecordState, Reply, Request, RunFacts, RunStatus, Snapshot, WATCH_EVERY,
        WATCH_EVERY_MIN,
    },
};
use crate::{export::write_torch_snapshot, file, host::Host, memory, schedule::Schedule, trace::Timestamp};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{SendFlags, send},
};
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A client's connection.
pub(super) struct Connection {
    stream: UnixStream,
    /// Bytes that were read and not yet looked at.
    unread: Vec<u8>,
}

impl Connection {
    /// How long a client may take to read a line, before it is given up.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// How long a client may take between two requests. `kernspan` asks at once.
    const IDLE: Duration = Duration::from_secs(60);
    /// How long a window may take before it is looked whether its client is still there: less than five times a second.
    const LOOK: Duration = Duration::from_millis(250);
    /// How often a client is told that its window is on the way.
    const TELL: Duration = Duration::from_secs(1);
    /// The time between two looks at the open spans of threads.
    const SAMPLE: Duration = Duration::from_millis(20);

    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, unread: Vec::new() }
    }

    /// Answers requests until the client hangs up, which is an error or not, or sends something that is none.
    pub(super) fn serve(&mut self, run: &AskedRun) -> io::Result<()> {
        loop {
            let line = match self.line() {
                Ok(Some(line)) => line,
                Ok(None) => return Ok(()),
                Err(error) => return self.send(&Reply::Error { message: error.to_string() }),
            };
            let reply = match serde_json::from_slice(&line) {
                Ok(Request::Status {}) => Reply::Status(run.status()),
                Ok(Request::Record(record)) => match record.to_request() {
                    Ok(request) => match record.out.as_deref().map_or(Ok(()), check_folder) {
                        Ok(()) => self.record(run, request)?,
                        Err(message) => Reply::Error { message },
                    },
                    Err(message) => Reply::Error { message },
                },
                Ok(Request::Stop {}) => Reply::Stopped { closed: run.control.stop() },
                Ok(Request::Snapshot { out }) => match run.snapshot(out.as_deref()) {
                    Ok(snapshot) => Reply::Snapshot(snapshot),
                    Err(message) => Reply::Error { message },
                },
                Ok(Request::Schedule { schedule }) => match run.set_schedule(&schedule) {
                    Ok(schedule) => Reply::Scheduled { schedule },
                    Err(message) => Reply::Error { message },
                },
                Ok(Request::Watch { every_ms }) => {
                    let every = every_ms.map_or(WATCH_EVERY, Duration::from_millis).max(WATCH_EVERY_MIN);
                    return self.watch(run, every);
                }
                Err(error) => {
                    let message = format!("the request is not understood: {error}");
                    return self.send(&Reply::Error { message });
                }
            };
            self.send(&reply)?;
        }
    }

    /// Reads a line. Returns `None` if there is no other.
    fn line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let until = Instant::now() + Self::IDLE;
        let mut looked = 0;
        loop {
            if let Some(end) = self.unread[looked..].iter().position(|byte| *byte == b'\n') {
                let rest = self.unread.split_off(looked + end + 1);
                return Ok(Some(std::mem::replace(&mut self.unread, rest)));
            }
            looked = self.unread.len();
            if looked >= MAX_REQUEST {
                return Err(io::Error::other(format!("the request is longer than {MAX_REQUEST} bytes")));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::Error::other(format!("no request came within {:?}", Self::IDLE)));
            }
            self.stream.set_read_timeout(Some(left))?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(read) => self.unread.extend_from_slice(&bytes[..read]),
                // The time is looked at above.
                Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a line, unless the client does not read it in time.
    pub(super) fn send(&mut self, reply: &Reply) -> io::Result<()> {
        let mut line = serde_json::to_vec(reply)?;
        line.push(b'\n');
        let until = Instant::now() + Self::PATIENCE;
        let mut rest = &line[..];
        while !rest.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            // `write` would end a program that has `SIGPIPE` at its default when the client is gone.
            match send(&self.stream, rest, SendFlags::NOSIGNAL).map_err(io::Error::from) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if is_timeout(&error) || error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether the client is gone. One that has only closed its sending half may still read.
    fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.stream, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        polled.is_ok() && fds[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
    }

    /// Asks for a window, and tells the client how far it has come. Returns the last reply.
    fn record(&mut self, run: &AskedRun, request: RecordRequest) -> io::Result<Reply> {
        let requested = run.control.record(request);
        // A client that is gone may have its request withdrawn, and everybody else's is answered.
        let withdrawn = Withdrawn(&requested);
        let mut told: Option<(Progress, Instant)> = None;
        let mut progress = requested.progress();
        let last = loop {
            let state = match &progress {
                Progress::Waiting => RecordState::Waiting,
                Progress::Recording => RecordState::Recording,
                Progress::Writing => RecordState::Writing,
                Progress::Done(recorded) => break Reply::Recorded((&**recorded).into()),
                Progress::Failed(message) => break Reply::Error { message: message.clone() },
            };
            if told.as_ref().is_none_or(|(last, at)| *last != progress || at.elapsed() >= Self::TELL) {
                let step = run.host.steps();
                self.send(&Reply::Progress(RecordProgress { state, step }))?;
                told = Some((progress.clone(), Instant::now()));
            }
            if self.is_gone() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            progress = requested.wait_for_change(&progress, Self::LOOK);
        };
        std::mem::forget(withdrawn);
        Ok(last)
    }

    /// Sends the state of the run again and again, and samples the open spans meanwhile.
    fn watch(&mut self, run: &AskedRun, every: Duration) -> io::Result<()> {
        let mut next = Instant::now();
        let mut last_step = None;
        loop {
            run.live.sample(&run.host);
            let now = Instant::now();
            if now >= next {
                let live = run.live(last_step);
                last_step = live.steps.last().map(|step| step.number).or(last_step);
                self.send(&Reply::Live(Box::new(live)))?;
                // A client that is slow gets fewer states, not all of them later.
                next = Instant::now().max(next + every);
            }
            if run.wait_for_end(Self::SAMPLE) || self.is_gone() {
                return Ok(());
            }
        }
    }
}

/// Withdraws a request when it is dropped.
struct Withdrawn<'a>(&'a Requested);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// The parts of a run that clients are told about.
#[derive(Debug)]
pub(super) struct AskedRun {
    pub(super) control: Control,
    pub(super) host: Arc<Host>,
    pub(super) facts: RunFacts,
    pub(super) live: Arc<LiveRun>,
    /// Whether the run has ended.
    pub(super) ended: Mutex<bool>,
    pub(super) changed: Condvar,
}

impl AskedRun {
    /// Notes that the run has ended.
    pub(super) fn end(&self) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for a time, or for the end of the run. Returns whether it has ended.
    pub(super) fn wait_for_end(&self, at_most: Duration) -> bool {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *self.changed.wait_timeout_while(ended, at_most, |ended| !*ended).unwrap_or_else(PoisonError::into_inner).0
    }

    fn status(&self) -> RunStatus {
        let rate = self.live.rate(Timestamp::now());
        RunStatus::new(&self.facts, self.control.status(), &self.control.gpu(), rate)
    }

    /// Returns the state of the run, with the steps that have ended since the last one.
    fn live(&self, last_step: Option<u64>) -> Live {
        let followed = self.control.memory.history.as_ref().map(|history| history.at(Timestamp::now()));
        let followed = followed.into_iter().flatten().map(|(name, bytes)| (name.to_owned(), bytes as u64));
        let mut memory: BTreeMap<_, _> = followed.collect();
        if memory.is_empty() {
            memory.extend(memory::resident_bytes().map(|bytes| ("memory.process".to_owned(), bytes)));
        }
        let (spans, samples) = self.live.spans();
        Live {
            status: self.status(),
            steps: self.live.steps_after(last_step),
            counters: self.live.counters(),
            memory,
            spans,
            samples,
            last_window: self.live.last_window(),
        }
    }

    fn set_schedule(&self, schedule: &str) -> Result<String, String> {
        let schedule: Schedule = schedule.parse()?;
        let words = schedule.to_string();
        self.control.set_schedule(schedule).map_err(|error| error.to_string())?;
        Ok(words)
    }

    fn snapshot(&self, out: Option<&Path>) -> Result<Snapshot, String> {
        let taken = self.control.memory_snapshot().map_err(|error| error.to_string())?;
        let file = out.map(|folder| {
            check_folder(folder)?;
            let metadata = &self.facts.metadata;
            let name = |attempt: u64| -> PathBuf {
                let again = if attempt == 0 { String::new() } else { format!("-{attempt}") };
                let host = metadata.host_of_files();
                folder.join(format!("{host}_{}.step_{}{again}.memory.pickle", metadata.pid, taken.step()))
            };
            file::write_first_free(name, |out| write_torch_snapshot(&taken, out)).map_err(|error| describe(&error))
        });
        Ok(Snapshot { step: taken.step(), text: taken.to_string(), file: file.transpose()? })
    }
}

/// Creates a folder, and checks that files can be written there.
fn check_folder(folder: &Path) -> Result<(), String> {
    if !folder.is_absolute() {
        return Err(format!("the folder {} is not absolute", folder.display()));
    }
    file::check(folder).map_err(|error| describe(&error))
}

fn describe(error: &file::FileError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
