//! Rows, on which events are drawn: those of threads, and those of GPUs with their numbers, names and order.

use crate::{
    export::{
        gpu_ranges::GpuRange,
        json::{Members, Object},
    },
    trace::{Nesting, Stream, StreamId, Trace, Track, Wait, nesting_order},
};
use rustc_hash::{FxHashMap, FxHashSet};

/// A row, by the two numbers that Kineto gives it: process and thread, or device and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

impl Row {
    /// The difference between the `tid`s of the rows of one thread or stream: more than any thread id or stream number.
    pub(super) const TID_STRIDE: i64 = 10_000_000;

    /// Returns the row of a track in this process. Its `tid` is the thread's own id, or one that no thread has.
    pub(super) fn of_track(pid: i64, track: &Track) -> Self {
        let tid = track.thread().as_u64().cast_signed();
        Self { pid, tid: tid.wrapping_add(i64::from(track.overlap()) * Self::TID_STRIDE) }
    }

    /// Adds the row to an event.
    pub(super) fn write(self, event: &mut Object<'_>) {
        event.number("pid", self.pid);
        event.number("tid", self.tid);
    }
}

/// A row as text, kept because many events are on the same row.
#[derive(Clone, Debug)]
pub(super) struct RowText(Members);

impl RowText {
    /// Takes the members that name a row.
    pub(super) fn of(members: Members) -> Self {
        Self(members)
    }

    /// Adds the row to an event.
    #[inline]
    pub(super) fn write(&self, event: &mut Object<'_>) {
        event.members(&self.0);
    }
}

impl From<Row> for RowText {
    fn from(row: Row) -> Self {
        Self(Members::new(|event| row.write(event)))
    }
}

/// Kineto's process number for events that belong to no process or device. It gets no name, since Perfetto reads it as
/// 0.
pub(super) const NO_DEVICE: i64 = -1;

/// Returns the number of the host's process.
///
/// A GPU is a process with the GPU's number. The first process of a container has the number 1, and so does the second
/// GPU. In that case the host's process gets another number.
pub(super) fn host_pid(trace: &Trace) -> i64 {
    let pid = i64::from(trace.metadata().pid);
    let mut devices = trace.streams().iter().map(Stream::device).chain(trace.waits().filter_map(Wait::device));
    let is_device = devices.any(|device| i64::from(device.as_u32()) == pid);
    if is_device { pid + Row::TID_STRIDE } else { pid }
}

/// The rows of all GPUs of a trace.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// The rows of streams, by the streams' ids.
    pub(super) streams: Vec<Row>,
    /// The row of each wait, in the order of the waits.
    pub(super) waits: Vec<Row>,
    /// The row of each overhead, in the order of the overheads.
    pub(super) overheads: Vec<Row>,
    ranges: FxHashMap<(StreamId, usize), Row>,
    used: FxHashSet<Row>,
    /// For each device and stream number, the number of strides after which all rows are free.
    free_from: FxHashMap<(i64, i64), usize>,
    named: Vec<(Position, Row, String)>,
}

/// The position of a row among the others: its device, context, stream, kind and number.
type Position = (i64, i64, i64, Kind, usize);

/// The kinds of rows, in the order they are shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Ranges,
    Work,
    Waits,
    Overhead,
}

impl Rows {
    pub(super) fn new(trace: &Trace, ranges: &[GpuRange]) -> Self {
        let mut rows = Self::default();
        for stream in trace.streams() {
            let (device, context, number) = (stream.device().as_u32(), stream.context(), stream.number());
            let overlap = stream.overlap() as usize;
            let position = (device.into(), context.into(), number.into(), Kind::Work, overlap);
            // Kineto's names end in a space.
            let row = rows.add(position, number.into(), overlap, format!("{} ", stream.label()));
            rows.streams.push(row);
        }
        for range in ranges {
            if !rows.ranges.contains_key(&(range.stream, range.row)) {
                let row = rows.row_of_range(trace, range);
                rows.ranges.insert((range.stream, range.row), row);
            }
        }
        rows.place_overheads(trace);
        rows.place_waits(trace);
        rows
    }

    /// Returns the row of a range, which is that of its stream if the range nests there.
    pub(super) fn range(&self, range: &GpuRange) -> Row {
        self.ranges[&(range.stream, range.row)]
    }

    fn row_of_range(&mut self, trace: &Trace, range: &GpuRange) -> Row {
        if range.row == 0 {
            return self.streams[range.stream.index()];
        }
        let stream = &trace.streams()[range.stream.index()];
        let (device, context, number) = (stream.device().as_u32(), stream.context(), stream.number());
        let position = (device.into(), context.into(), number.into(), Kind::Ranges, range.row);
        self.add(position, number.into(), range.row, format!("stream {number} spans {}", range.row))
    }

    /// Puts waits on separate rows, next to the work they wait for: a wait for a stream crosses the work that runs
    /// there.
    fn place_waits(&mut self, trace: &Trace) {
        let waits: Vec<_> = trace.waits().collect();
        let mut nestings: FxHashMap<_, (Nesting, Vec<Row>)> = FxHashMap::default();
        self.waits = vec![Row { pid: NO_DEVICE, tid: 0 }; waits.len()];
        for index in nesting_order(waits.iter().map(|wait| (wait.start(), wait.end()))) {
            let wait = waits[index];
            let pid = wait.device().map_or(NO_DEVICE, |device| device.as_u32().into());
            let (context, stream) = (i64::from(wait.context()), wait.stream());
            let (nesting, rows) = nestings.entry((pid, context, stream)).or_default();
            let row = nesting.place(wait.start(), wait.end(), 0);
            if row == rows.len() {
                let name = match stream {
                    Some(stream) => format!("stream {stream} sync"),
                    None => format!("context {context} sync"),
                };
                // A wait for a context is one for all its streams, so it is shown after them, on a row that is not a
                // stream's.
                let (number, strides) = stream.map_or((0, row + 1), |stream| (stream.into(), row));
                let last = stream.map_or(i64::MAX, i64::from);
                rows.push(self.add((pid, context, last, Kind::Waits, row), number, strides, name));
            }
            self.waits[index] = rows[row];
        }
    }

    fn place_overheads(&mut self, trace: &Trace) {
        let overheads = trace.overheads();
        let mut nesting = Nesting::default();
        let mut rows = Vec::new();
        self.overheads = vec![Row { pid: NO_DEVICE, tid: 0 }; overheads.len()];
        for index in nesting_order(overheads.iter().map(|overhead| (overhead.start(), overhead.end()))) {
            let row = nesting.place(overheads[index].start(), overheads[index].end(), 0);
            if row == rows.len() {
                rows.push(self.add((NO_DEVICE, 0, 0, Kind::Overhead, row), 0, row, "overhead".to_owned()));
            }
            self.overheads[index] = rows[row];
        }
    }

    /// Adds a row, and returns it. Its `tid` is `number` plus this many strides, or more if that row is already used:
    /// contexts of a device may number their streams alike.
    fn add(&mut self, position: Position, number: i64, mut strides: usize, name: String) -> Row {
        // Perfetto takes rows without a device for those of device 0.
        let pid = position.0.max(0);
        let tid = |strides: usize| number + strides as i64 * Row::TID_STRIDE;
        let free_from = self.free_from.entry((pid, number)).or_default();
        if !self.used.insert(Row { pid, tid: tid(strides) }) {
            strides = (*free_from).max(strides + 1);
            while !self.used.insert(Row { pid, tid: tid(strides) }) {
                strides += 1;
            }
        }
        *free_from = (*free_from).max(strides + 1);
        let row = Row { pid: position.0, tid: tid(strides) };
        self.named.push((position, row, name));
        row
    }

    /// Returns all rows with their names, in display order.
    pub(super) fn names(&self) -> Vec<(Row, &str)> {
        let mut named: Vec<_> = self.named.iter().collect();
        named.sort_unstable_by_key(|(position, row, _)| (*position, *row));
        named.into_iter().map(|(_, row, name)| (*row, name.as_str())).collect()
    }
}
