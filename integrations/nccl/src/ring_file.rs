//! The file of a rank with the last calls of its communicators, for `kernspan ranks hang`.

use crate::{
    communicators::{COMMUNICATORS, Communicator},
    ring::{CallKind, Entry, now},
};
use kernspan::{
    analysis::MemoryFrame,
    framework::{HandOver, ThreadSpans},
    trace::Metadata,
};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Mutex,
};

/// Marks a file as one of these.
const FORMAT: &str = "kernspan-nccl";
/// The version of the format. A reader refuses higher ones.
const VERSION: u32 = 1;

/// A rank's file. Times are nanoseconds since 1970 by the clock of its host.
#[derive(Serialize)]
struct RingFile {
    format: &'static str,
    version: u32,
    /// Why it was written.
    reason: &'static str,
    written: u64,
    host: String,
    pid: u32,
    rank: u32,
    world_size: u32,
    step: u64,
    /// The spans that each thread is in.
    threads: Vec<Thread>,
    /// Whether it is known when calls have started and finished.
    channels: bool,
    communicators: Vec<Group>,
}

#[derive(Serialize)]
struct Thread {
    thread: String,
    spans: Vec<Frame>,
}

#[derive(Serialize)]
struct Frame {
    name: String,
    file: Option<&'static str>,
    line: Option<u32>,
}

#[derive(Serialize)]
struct Group {
    communicator: String,
    name: String,
    rank: u32,
    ranks: u32,
    nodes: u32,
    /// When it ended, if it has.
    closed: Option<u64>,
    /// The number of all calls, of which the last follow, oldest first.
    total: u64,
    calls: Vec<CallInFile>,
}

#[derive(Serialize)]
struct CallInFile {
    kind: &'static str,
    function: String,
    sequence: Option<u64>,
    count: u64,
    dtype: String,
    algorithm: String,
    protocol: String,
    channels: u32,
    peer: Option<u32>,
    entered: u64,
    launched: Option<u64>,
    started: Option<u64>,
    finished: Option<u64>,
    spans: Vec<Frame>,
}

/// Writes the file of this process into a folder, and returns its path. Replaces an earlier one of the same rank, at
/// once: a reader sees either.
pub(crate) fn write(folder: &Path, reason: &'static str, profiler: &HandOver) -> io::Result<PathBuf> {
    static WRITING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = WRITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let communicators = COMMUNICATORS.all();
    let Metadata { host, pid, mut rank, mut world_size, .. } = Metadata::of_this_process();
    // Without a launcher that says so, the largest communicator has the rank.
    if let Some(largest) = communicators.iter().max_by_key(|it| it.ranks).filter(|_| world_size == 1) {
        (rank, world_size) = (largest.rank, largest.ranks);
    }
    let file = RingFile {
        format: FORMAT,
        version: VERSION,
        reason,
        written: now(),
        host,
        pid,
        rank,
        world_size,
        step: profiler.current_step(),
        threads: profiler.open_spans_of_threads().into_iter().map(Thread::from).collect(),
        channels: COMMUNICATORS.has_channels(),
        communicators: communicators.iter().map(|communicator| Group::from(&**communicator)).collect(),
    };
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("rank{rank:05}.nccl"));
    let temporary = folder.join(format!(".rank{rank:05}.nccl.{pid}"));
    let written = serde_json::to_vec(&file).map_err(io::Error::other).and_then(|text| {
        let mut out = File::create(&temporary)?;
        out.write_all(&text)?;
        out.sync_data()?;
        fs::rename(&temporary, &path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map(|()| path)
}

impl From<ThreadSpans> for Thread {
    fn from(open: ThreadSpans) -> Self {
        Self { thread: open.thread, spans: frames(&open.spans) }
    }
}

impl From<&Communicator> for Group {
    fn from(communicator: &Communicator) -> Self {
        let Communicator { group, name, nodes, ranks, rank, .. } = communicator;
        let ring = communicator.ring();
        Self {
            communicator: group.to_string(),
            name: name.clone(),
            rank: *rank,
            ranks: *ranks,
            nodes: *nodes,
            closed: communicator.closed(),
            total: ring.calls,
            calls: ring.entries().map(CallInFile::from).collect(),
        }
    }
}

impl From<&Entry> for CallInFile {
    fn from(entry: &Entry) -> Self {
        let call = &entry.call;
        Self {
            kind: match call.kind {
                CallKind::Collective => "collective",
                CallKind::PointToPoint => "point-to-point",
                CallKind::CopyEngine => "copy-engine",
            },
            function: call.function.to_string(),
            sequence: call.sequence,
            count: call.count,
            dtype: call.dtype.to_string(),
            algorithm: call.algorithm.to_string(),
            protocol: call.protocol.to_string(),
            channels: call.channels,
            peer: call.peer,
            entered: entry.entered,
            launched: entry.launched,
            started: entry.started,
            finished: entry.finished,
            spans: frames(&entry.spans),
        }
    }
}

fn frames(spans: &[MemoryFrame]) -> Vec<Frame> {
    let frame = |span: &MemoryFrame| Frame { name: span.name.to_string(), file: span.file, line: span.line };
    spans.iter().map(frame).collect()
}
