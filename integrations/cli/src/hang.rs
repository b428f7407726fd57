//! The command `ranks hang`: which ranks are missing from which collective, by the files that `kernspan-nccl` writes.

mod files;

use self::files::{Call, Frame, Group, RingFile, Thread, read};
use crate::{
    fault::Fault,
    json::json,
    output::{Section, Style},
};
use kernspan::report::{Table, units};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

/// Print which ranks are missing from a collective that others wait in
///
/// Reads the files `rankN.nccl` of a folder, which each rank of a program with kernspan-nccl writes when a step takes
/// too long, on a signal, and at its end. A collective is the same on all ranks of its communicator if its function and
/// its number are. A rank waits in one that it has called and that has not ended for a second. A rank is missing if it
/// has not called it; it is named with the spans that its threads were in.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  kernspan ranks hang runs/ddp

Exit status: 0 success; 1 a file could not be read, or there is none; 2 usage error")]
pub(crate) struct Args {
    /// Folder with the files of all ranks
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    #[command(flatten)]
    style: Style,
}

/// The time after which a rank waits in a collective, rather than work on it. Files of a run that goes well are written
/// within milliseconds of its last collective, and collectives take milliseconds.
const WAITS: Duration = Duration::from_secs(1);

impl Args {
    pub(crate) fn run(&self) -> Result<(), Fault> {
        let (files, is_complete) = read(&self.folder)?;
        let hangs = Hangs::of(&files);
        self.style.print(&[section(&hangs)])?;
        if is_complete { Ok(()) } else { Err(Fault::Incomplete) }
    }
}

/// The collectives that ranks wait in.
#[derive(Debug)]
struct Hangs {
    hangs: Vec<Hang>,
    /// Ranks of the run without a file.
    no_file: Vec<u32>,
    files: usize,
}

/// A call that some ranks wait in.
#[derive(Debug, Serialize)]
struct Hang {
    communicator: String,
    name: String,
    /// The number of ranks of the communicator.
    size: u32,
    function: String,
    sequence: Option<u64>,
    /// The rank that a send or receive exchanges data with, in the communicator.
    peer: Option<u32>,
    waiting: Vec<Waiting>,
    missing: Vec<Missing>,
    /// Ranks of the communicator whose files are missing, by their number in it.
    unknown: Vec<u32>,
}

/// A rank that waits in a call.
#[derive(Debug, Serialize)]
struct Waiting {
    rank: u32,
    host: String,
    state: &'static str,
    time: Duration,
    /// The spans in which it made the call.
    spans: Vec<Frame>,
}

/// A rank that has not made a call.
#[derive(Debug, Serialize)]
struct Missing {
    rank: u32,
    host: String,
    step: u64,
    /// The number of its last call of the function, if there was one.
    last: Option<u64>,
    /// Whether it has ended.
    ended: bool,
    /// The spans that its threads are in.
    threads: Vec<Thread>,
    /// The call that it waits in itself, if it does.
    waits_in: Option<String>,
}

/// A call that a rank waits in: its communicator, function, number, and peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key<'a> {
    communicator: &'a str,
    function: &'a str,
    sequence: Option<u64>,
    peer: Option<u32>,
}

impl Hangs {
    fn of(files: &[RingFile]) -> Self {
        let mut waits: BTreeMap<Key<'_>, Vec<(&RingFile, &Group, &Call)>> = BTreeMap::new();
        for file in files {
            for group in &file.communicators {
                if let Some((key, call)) = first_waiting(file, group) {
                    waits.entry(key).or_default().push((file, group, call));
                }
            }
        }
        let own: BTreeMap<u32, String> =
            waits.iter().flat_map(|(key, all)| all.iter().map(move |(file, ..)| (file.rank, key.text()))).collect();
        let mut hangs: Vec<_> = waits.iter().map(|(key, waiting)| Hang::of(key, waiting, files, &own)).collect();
        // A rank that waits nowhere itself is the cause; what hangs behind it comes after.
        hangs.sort_by_key(|hang| hang.missing.iter().all(|missing| missing.waits_in.is_some()));
        let world = files.iter().map(|file| file.world_size).max().unwrap_or(0);
        let ranks: BTreeSet<_> = files.iter().map(|file| file.rank).collect();
        // A file may name any number of ranks.
        let no_file = (0..world.min(1 << 20)).filter(|rank| !ranks.contains(rank)).collect();
        Self { hangs, no_file, files: files.len() }
    }
}

impl Key<'_> {
    fn text(&self) -> String {
        let Self { communicator, function, .. } = self;
        let number = self.sequence.map(|number| format!(" {number}")).unwrap_or_default();
        let peer = self.peer.map(|peer| format!(" with rank {peer}")).unwrap_or_default();
        format!("{function}{number}{peer} of communicator {communicator}")
    }
}

impl Hang {
    fn of(key: &Key<'_>, all: &[(&RingFile, &Group, &Call)], files: &[RingFile], own: &BTreeMap<u32, String>) -> Self {
        let waiting = all.iter().map(|(file, group, call)| Waiting {
            rank: file.rank,
            host: file.host.clone(),
            state: call.state(),
            time: call.waited(file, group),
            spans: call.spans.clone(),
        });
        let members: Vec<_> = files.iter().filter_map(|file| Some((file, file.group(key.communicator)?))).collect();
        let size = members.iter().map(|(_, group)| group.ranks).max().unwrap_or(0);
        let is_missing = |file: &RingFile, group: &Group| match key.peer {
            Some(peer) => group.rank == peer && first_waiting(file, group).is_none(),
            None => last(group, key.function) < key.sequence,
        };
        let missing = members.iter().filter(|(file, group)| is_missing(file, group)).map(|(file, group)| Missing {
            rank: file.rank,
            host: file.host.clone(),
            step: file.step,
            last: last(group, key.function),
            ended: file.reason == "end",
            threads: file.threads.clone(),
            waits_in: own.get(&file.rank).cloned(),
        });
        let known: BTreeSet<_> = members.iter().map(|(_, group)| group.rank).collect();
        let needed = |rank: &u32| key.peer.is_none_or(|peer| peer == *rank);
        Self {
            communicator: key.communicator.to_owned(),
            name: all.first().map(|(_, group, _)| group.name.clone()).unwrap_or_default(),
            size,
            function: key.function.to_owned(),
            sequence: key.sequence,
            peer: key.peer,
            waiting: waiting.collect(),
            missing: missing.collect(),
            unknown: (0..size.min(1 << 20)).filter(|rank| !known.contains(rank)).filter(needed).collect(),
        }
    }

    /// Says it in a sentence.
    fn text(&self) -> String {
        let Self { communicator, function, sequence, peer, .. } = self;
        let key = Key { communicator, function, sequence: *sequence, peer: *peer };
        let named = if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) };
        let mut text = format!("{}{named}, {} ranks: ", key.text(), self.size);
        let missing: Vec<_> = self.missing.iter().map(Missing::text).collect();
        text += &match missing.is_empty() {
            false => missing.join("; "),
            true if self.unknown.is_empty() => "no rank is missing, so a link or a GPU may be broken".to_owned(),
            true => "no rank with a file is missing".to_owned(),
        };
        if !self.unknown.is_empty() {
            text += &format!("; there is no file of {}", numbers(&self.unknown, "its rank"));
        }
        let ranks: Vec<_> = self.waiting.iter().map(|waiting| waiting.rank).collect();
        let time = self.waiting.iter().map(|waiting| waiting.time).max().unwrap_or_default();
        let verb = if ranks.len() == 1 { "waits" } else { "wait" };
        text += &format!("; {} {verb}, for {} so far", numbers(&ranks, "rank"), units::time(time));
        if let Some(path) = self.waiting.first().map(|waiting| path(&waiting.spans)).filter(|path| !path.is_empty()) {
            text += &format!(", called in {path}");
        }
        text
    }
}

impl Missing {
    fn text(&self) -> String {
        let place = match self.threads.as_slice() {
            _ if self.ended => "as it has ended".to_owned(),
            [] => "in no span".to_owned(),
            // Threads that entered a span first come first: mostly the main thread.
            threads => {
                let paths = threads.iter().take(3).map(|thread| path(&thread.spans));
                format!("in {}", paths.collect::<Vec<_>>().join(" and "))
            }
        };
        let waits = self.waits_in.as_ref().map(|call| format!(", and waits in {call}")).unwrap_or_default();
        format!("rank {} is missing, {place}, step {}{waits}", self.rank, self.step)
    }
}

impl RingFile {
    fn group(&self, communicator: &str) -> Option<&Group> {
        self.communicators.iter().find(|group| group.communicator == communicator)
    }
}

impl Call {
    fn state(&self) -> &'static str {
        match self {
            Self { finished: Some(_), .. } => "finished",
            Self { started: Some(_), .. } => "started",
            Self { launched: Some(_), .. } => "launched",
            _ => "entered",
        }
    }

    /// How long the call had not ended when the file was written, or the communicator closed.
    fn waited(&self, file: &RingFile, group: &Group) -> Duration {
        let end = group.closed.unwrap_or(file.written);
        Duration::from_nanos(end.saturating_sub(self.launched.unwrap_or(self.entered)))
    }

    fn is_collective(&self) -> bool {
        self.kind != "point-to-point"
    }
}

/// Returns the first call that a rank waits in. A communicator's calls run one after another, so those before a call
/// that has started have ended.
fn first_waiting<'a>(file: &RingFile, group: &'a Group) -> Option<(Key<'a>, &'a Call)> {
    let started = group.calls.iter().rposition(|call| call.started.is_some()).unwrap_or(0);
    // If nothing is known of starts and ends, only the last call can be waited in.
    let first = if file.channels { started } else { group.calls.len().saturating_sub(1) };
    let waits = |call: &&Call| call.finished.is_none() && call.waited(file, group) >= WAITS;
    let index = first + group.calls[first..].iter().position(|call| waits(&call))?;
    let call = &group.calls[index];
    let sequence = if call.is_collective() { sequences(group, &call.function, index) } else { None };
    let peer = if call.is_collective() { None } else { call.peer };
    Some((Key { communicator: &group.communicator, function: &call.function, sequence, peer }, call))
}

/// Returns the number of the last call of a function up to this index. NCCL gives it when it launches the call; those
/// that were only entered are counted on.
fn sequences(group: &Group, function: &str, index: usize) -> Option<u64> {
    // If all calls are there, the first has the number 0.
    let is_whole = group.total == group.calls.len() as u64;
    let mut next = is_whole.then_some(0);
    let mut last = None;
    for call in group.calls.iter().take(index + 1).filter(|call| call.function == function) {
        last = call.sequence.or(next);
        next = last.map(|number| number.saturating_add(1));
    }
    last
}

/// Returns the number of the last call of a function that a rank has made, if it has made one.
fn last(group: &Group, function: &str) -> Option<u64> {
    sequences(group, function, group.calls.len())
}

/// Returns spans as a path, with the place of the innermost.
fn path(spans: &[Frame]) -> String {
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    let place = spans.last().and_then(|span| Some(format!(" ({}:{})", span.file.as_ref()?, span.line?)));
    if names.is_empty() { String::new() } else { format!("`{}`{}", names.join(" > "), place.unwrap_or_default()) }
}

/// Returns a list of ranks, of which the first eight are named.
fn numbers(ranks: &[u32], word: &str) -> String {
    let named: Vec<_> = ranks.iter().take(8).map(ToString::to_string).collect();
    let rest = if ranks.len() > 8 { format!(" and {} more", ranks.len() - 8) } else { String::new() };
    format!("{word}{} {}{rest}", if ranks.len() == 1 { "" } else { "s" }, named.join(", "))
}

fn section(hangs: &Hangs) -> Section {
    let rows: Vec<_> = hangs.hangs.iter().flat_map(|hang| hang.waiting.iter().map(move |it| (hang, it))).collect();
    let mut table = Table::default();
    table.number("Rank", &rows, |(_, waiting)| waiting.rank.to_string());
    table.text("Host", &rows, |(_, waiting)| Some(waiting.host.clone())).droppable(2);
    table.text("Waits in", &rows, |(hang, _)| Some(hang.function.clone()));
    table.number("Number", &rows, |(hang, _)| hang.sequence.map(|number| number.to_string()).unwrap_or_default());
    table.text("Communicator", &rows, |(hang, _)| Some(hang.communicator.clone())).droppable(1);
    table.text("State", &rows, |(_, waiting)| Some(waiting.state.to_owned()));
    table.number("For", &rows, |(_, waiting)| units::column_time(waiting.time));
    let mut below: Vec<_> = hangs.hangs.iter().map(Hang::text).collect();
    if !hangs.no_file.is_empty() {
        let verb = if hangs.no_file.len() == 1 { "has" } else { "have" };
        below.push(format!("warning: {} {verb} no file", numbers(&hangs.no_file, "rank")));
    }
    if hangs.hangs.is_empty() {
        let time = units::time(WAITS);
        below.insert(0, format!("none of {} ranks waits in a collective for longer than {time}", hangs.files));
    }
    Section {
        title: "Hangs".to_owned(),
        key: "hangs",
        table: Some(table).filter(|_| !rows.is_empty()),
        rows: hangs.hangs.iter().map(json).collect(),
        members: vec![("no_file", json(&hangs.no_file))],
        below: below.join("\n"),
        ..Section::default()
    }
}
