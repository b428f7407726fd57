//! The rows of a document, and the tracks they become.

use super::{event::Event, header::Header, raw::Raw};
use crate::trace::{ProcessNames, RowId, RowName, ThreadId, Track, TrackId};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, collections::BTreeMap};

/// The rows that events are on, by the numbers of process and thread.
#[derive(Debug, Default)]
pub(super) struct Rows {
    indices: FxHashMap<(i64, i64), usize>,
    /// The row last requested, since events come row by row.
    latest: Option<((i64, i64), usize)>,
    rows: Vec<Row>,
    /// The process whose label is `CPU`: its number in the file, and its own.
    host: Option<(i64, u32)>,
    /// The names and positions of processes in a trace of PyTorch.
    processes: BTreeMap<RowId, ProcessNames>,
}

#[derive(Debug)]
struct Row {
    pid: i64,
    tid: i64,
    name: Option<String>,
    sort_index: i64,
    /// Whether it contains anything that a thread did.
    is_thread: bool,
}

impl Rows {
    /// The row of kernspan's steps that do not nest with the spans of their thread.
    const STEPS_TID: i64 = 0;
    /// The difference between the numbers of a thread's rows in kernspan's files.
    pub(super) const TID_STRIDE: i64 = 10_000_000;

    /// Returns the row of something that a thread did; `None` if its numbers are invalid.
    pub(super) fn thread(&mut self, pid: Raw<'_>, tid: Raw<'_>) -> Option<TrackId> {
        let row = self.row(pid, tid)?;
        self.rows[row].is_thread = true;
        Some(TrackId::new(row))
    }

    /// Returns the main row of the thread that one of kernspan's rows belongs to.
    pub(super) fn main_row(&mut self, pid: Raw<'_>, tid: Raw<'_>) -> Option<TrackId> {
        let main = tid.i64()?.rem_euclid(Self::TID_STRIDE).to_string();
        self.thread(pid, Raw(&main))
    }

    /// Returns the row of something that does not belong to a track, such as an arrow.
    pub(super) fn at(&mut self, pid: Raw<'_>, tid: Raw<'_>) -> Option<TrackId> {
        self.row(pid, tid).map(TrackId::new)
    }

    fn row(&mut self, pid: Raw<'_>, tid: Raw<'_>) -> Option<usize> {
        let numbers = (pid.i64()?, tid.i64()?);
        if let Some((latest, row)) = self.latest
            && latest == numbers
        {
            return Some(row);
        }
        let row = *self.indices.entry(numbers).or_insert_with(|| {
            let (pid, tid) = numbers;
            self.rows.push(Row { pid, tid, name: None, sort_index: i64::MAX, is_thread: false });
            self.rows.len() - 1
        });
        self.latest = Some((numbers, row));
        Some(row)
    }

    /// Takes the name or position of a row or process. Returns whether the event is one.
    pub(super) fn add_metadata(&mut self, event: &Event<'_>, is_torch: bool) -> bool {
        if is_torch {
            self.add_process(event);
        }
        match &*event.name {
            "thread_name" => {
                let (row, name) = (self.row(event.pid, event.tid), event.arg("name").text());
                if let (Some(row), Some(name)) = (row, name) {
                    // Torch names some threads twice, the second time with more than the number.
                    self.rows[row].name = Some(name.into_owned());
                }
            }
            "thread_sort_index" => {
                if let (Some(row), Some(index)) = (self.row(event.pid, event.tid), event.arg("sort_index").i64()) {
                    self.rows[row].sort_index = index;
                }
            }
            "process_labels" if event.arg("labels").text().is_some_and(|label| label == "CPU") => {
                self.host = event.pid.i64().map(|pid| (pid, u32::try_from(pid).unwrap_or(0)));
            }
            "process_sort_index" => {
                // kernspan sorts its process by its own number, which may be a GPU's, so that its rows have another.
                if let (Some((pid, own)), Some(index)) = (&mut self.host, event.arg("sort_index").u32())
                    && event.pid.i64() == Some(*pid)
                    && *pid != i64::from(index)
                    && *pid == i64::from(index) + Self::TID_STRIDE
                {
                    *own = index;
                }
            }
            "process_name" | "process_labels" => {}
            _ => return false,
        }
        true
    }

    fn add_process(&mut self, event: &Event<'_>) {
        let argument = match &*event.name {
            "process_name" => event.arg("name"),
            "process_labels" => event.arg("labels"),
            "process_sort_index" => event.arg("sort_index"),
            _ => return,
        };
        let names = self.processes.entry(row_id(event.pid)).or_default();
        let text = argument.text().map(Cow::into_owned);
        match &*event.name {
            "process_name" => names.name = text.or(names.name.take()),
            "process_labels" => names.label = text.or(names.label.take()),
            _ => names.sort_index = argument.i64().or(names.sort_index),
        }
    }

    /// The name of the host's process in a trace of PyTorch.
    pub(super) fn process_name(&self) -> Option<String> {
        let (pid, _) = self.host?;
        self.processes.get(&RowId::Number(pid))?.name.clone()
    }

    /// The names and positions of processes and of rows, in a trace of PyTorch.
    pub(super) fn names(&mut self) -> (BTreeMap<RowId, ProcessNames>, BTreeMap<(i64, i64), RowName>) {
        let named = self.rows.iter().filter(|row| row.name.is_some() || row.sort_index != i64::MAX);
        let names = named.map(|row| {
            let sort_index = Some(row.sort_index).filter(|index| *index != i64::MAX);
            ((row.pid, row.tid), RowName { name: row.name.clone(), sort_index })
        });
        (std::mem::take(&mut self.processes), names.collect())
    }

    /// The number of the process, if the document states it.
    pub(super) fn process(&self) -> Option<u32> {
        self.host.map(|(_, own)| own)
    }

    /// The number of the process that the first thread belongs to. PyTorch says only at the end which one is its own.
    pub(super) fn first_process(&self) -> Option<u32> {
        self.rows.iter().find(|row| row.is_thread).and_then(|row| u32::try_from(row.pid).ok())
    }

    /// Returns the tracks, and the track of each row.
    pub(super) fn into_tracks(self, header: &Header) -> (Vec<Track>, Vec<TrackId>) {
        let host = self.host.map(|(pid, _)| pid);
        let is_ours = header.is_ours();
        let is_track = |row: &Row| {
            // PyTorch also names threads that did nothing.
            let is_named =
                !header.is_torch() && Some(row.pid) == host && row.name.is_some() && row.tid != Self::STEPS_TID;
            row.is_thread || is_named
        };
        let mut order: Vec<_> = (0..self.rows.len()).filter(|&row| is_track(&self.rows[row])).collect();
        order.sort_by_key(|&row| self.rows[row].sort_index);
        let mut tracks = vec![TrackId::new(0); self.rows.len()];
        for (track, &row) in order.iter().enumerate() {
            tracks[row] = TrackId::new(track);
        }
        (order.into_iter().map(|row| self.rows[row].track(is_ours)).collect(), tracks)
    }
}

/// The id of a process or thread.
pub(super) fn row_id(raw: Raw<'_>) -> RowId {
    match raw.i64() {
        Some(number) => RowId::Number(number),
        None => RowId::Text(raw.text().unwrap_or_default().into_owned()),
    }
}

impl Row {
    /// Returns the track that the row is.
    fn track(&self, is_ours: bool) -> Track {
        let label = self.name.clone().unwrap_or_else(|| format!("thread {}", self.tid));
        let overlap = || {
            let (name, rest) = label.rsplit_once(" (overlap ").filter(|_| is_ours)?;
            let overlap: u32 = rest.strip_suffix(')')?.parse().ok()?;
            Some((name.to_owned(), overlap, self.tid.checked_sub(i64::from(overlap) * Rows::TID_STRIDE)?))
        };
        let (name, overlap, tid) = overlap().unwrap_or((label.clone(), 0, self.tid));
        Track { thread: ThreadId::new(tid.cast_unsigned()), name, overlap }
    }
}
