//! The rows of the document: where a reader finds them, and in what order.

use crate::{
    export::{nest::Nest, ranges::GpuRange},
    trace::{DeviceId, Stream, StreamId, Trace, Track, Wait},
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
};

/// A row, by the numbers that Kineto has for it: process and thread, or device and stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Row {
    pub(super) pid: i64,
    pub(super) tid: i64,
}

/// The distance between the rows of one thread or stream, out of the reach of their numbers.
const OUT_OF_REACH: i64 = 10_000_000;

/// The process of what is of no process or device, as Kineto has it. It gets no name: Perfetto reads it as 0.
pub(super) const NOBODY: i64 = -1;

/// The number of the process. A GPU's process is the GPU's number; the first process of a container is 1, and so is the second
/// GPU.
pub(super) fn host_pid(trace: &Trace) -> i64 {
    let pid = i64::from(trace.metadata().pid);
    let is_device = devices(trace).into_iter().any(|device| i64::from(device.as_u32()) == pid);
    if is_device { pid + OUT_OF_REACH } else { pid }
}

/// A row for each track: the thread's own id, or one out of the reach of thread ids.
pub(super) fn tid(track: &Track) -> i64 {
    track.thread().as_u64().cast_signed().wrapping_add(i64::from(track.overlap()) * OUT_OF_REACH)
}

/// The devices that something is said of.
fn devices(trace: &Trace) -> Vec<DeviceId> {
    let of_streams = trace.streams().iter().map(Stream::device);
    let mut devices: Vec<_> = of_streams.chain(trace.waits().filter_map(Wait::device)).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// The rows of GPUs.
#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Those of streams, by their ids.
    pub(super) streams: Vec<Row>,
    /// Those of waits, in the order of the waits.
    pub(super) waits: Vec<Row>,
    /// Those of overheads, in their order.
    pub(super) overheads: Vec<Row>,
    ranges: HashMap<(StreamId, usize), Row>,
    taken: HashSet<Row>,
    /// How far the rows of each device's and stream's numbers reach.
    reach: HashMap<(i64, i64), usize>,
    named: Vec<(Place, Row, String)>,
}

/// Where a row is shown: device, context, stream, kind of row, number of the row.
type Place = (i64, i64, i64, Kind, usize);

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
            let place = (device.into(), context.into(), number.into(), Kind::Work, overlap);
            // Kineto's names end in a space.
            let row = rows.add(place, number.into(), overlap, format!("{} ", stream.label()));
            rows.streams.push(row);
        }
        for range in ranges {
            if !rows.ranges.contains_key(&(range.stream, range.row)) {
                let row = rows.of_ranges(trace, range);
                rows.ranges.insert((range.stream, range.row), row);
            }
        }
        rows.place_overheads(trace);
        rows.place_waits(trace);
        rows
    }

    /// The row of a range: the stream's own where it nests there.
    pub(super) fn range(&self, range: &GpuRange) -> Row {
        self.ranges[&(range.stream, range.row)]
    }

    fn of_ranges(&mut self, trace: &Trace, range: &GpuRange) -> Row {
        if range.row == 0 {
            return self.streams[range.stream.index()];
        }
        let stream = &trace.streams()[range.stream.index()];
        let (device, context, number) = (stream.device().as_u32(), stream.context(), stream.number());
        let place = (device.into(), context.into(), number.into(), Kind::Ranges, range.row);
        self.add(place, number.into(), range.row, format!("stream {number} spans {}", range.row))
    }

    /// Waits are beside the work they wait for, not among it: a wait for a stream crosses what runs there.
    fn place_waits(&mut self, trace: &Trace) {
        let waits: Vec<_> = trace.waits().collect();
        let mut order: Vec<_> = (0..waits.len()).collect();
        order.sort_by_key(|&wait| (waits[wait].start(), Reverse(waits[wait].end())));
        let mut nests: BTreeMap<_, (Nest, Vec<Row>)> = BTreeMap::new();
        self.waits = vec![Row { pid: NOBODY, tid: 0 }; waits.len()];
        for place in order {
            let wait = waits[place];
            let pid = wait.device().map_or(NOBODY, |device| device.as_u32().into());
            let (context, stream) = (i64::from(wait.context()), wait.stream());
            let (nest, rows) = nests.entry((pid, context, stream)).or_default();
            let row = nest.place(wait.start(), wait.end(), 0);
            if row == rows.len() {
                let name = match stream {
                    Some(stream) => format!("stream {stream} sync"),
                    None => format!("context {context} sync"),
                };
                // What waits for a context waits for all its streams, so it is shown after them, on a row no stream can have.
                let (number, away) = stream.map_or((0, row + 1), |stream| (stream.into(), row));
                let last = stream.map_or(i64::MAX, i64::from);
                rows.push(self.add((pid, context, last, Kind::Waits, row), number, away, name));
            }
            self.waits[place] = rows[row];
        }
    }

    fn place_overheads(&mut self, trace: &Trace) {
        let overheads = trace.overheads();
        let mut order: Vec<_> = (0..overheads.len()).collect();
        order.sort_by_key(|&place| (overheads[place].start(), Reverse(overheads[place].end())));
        let mut nest = Nest::default();
        let mut rows = Vec::new();
        self.overheads = vec![Row { pid: NOBODY, tid: 0 }; overheads.len()];
        for place in order {
            let row = nest.place(overheads[place].start(), overheads[place].end(), 0);
            if row == rows.len() {
                rows.push(self.add((NOBODY, 0, 0, Kind::Overhead, row), 0, row, "overhead".to_owned()));
            }
            self.overheads[place] = rows[row];
        }
    }

    /// A row that no other has: that of the stream's `number`, moved out of reach `away` times or more. Contexts of a device may
    /// number their streams alike.
    fn add(&mut self, place: Place, number: i64, away: usize, name: String) -> Row {
        // Nobody's rows are those of device 0 to Perfetto.
        let pid = place.0.max(0);
        let tid = |away: usize| number + away as i64 * OUT_OF_REACH;
        let reach = self.reach.entry((pid, number)).or_default();
        let mut away = away;
        if !self.taken.insert(Row { pid, tid: tid(away) }) {
            away = (*reach).max(away + 1);
            while !self.taken.insert(Row { pid, tid: tid(away) }) {
                away += 1;
            }
        }
        *reach = (*reach).max(away + 1);
        let row = Row { pid: place.0, tid: tid(away) };
        self.named.push((place, row, name));
        row
    }

    /// Every row with its name, in the order they are to be shown in.
    pub(super) fn names(&self) -> Vec<(Row, &str)> {
        let mut named: Vec<_> = self.named.iter().collect();
        named.sort_unstable_by_key(|(place, row, _)| (*place, *row));
        named.into_iter().map(|(_, row, name)| (*row, name.as_str())).collect()
    }
}
