//! Which row each piece of work is on.

use crate::{
    recording::WorkRecord,
    trace::{DeviceId, Stream, StreamId, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Rows on which no work overlaps, and the work on them.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) streams: Vec<Stream>,
    /// Row by row, in order of time: the row, and the place of the record.
    pub(super) work: Vec<(StreamId, u32)>,
}

/// Streams in the order of their numbers, and after each the rows for what overlaps on it, as no viewer draws that on one.
pub(super) fn rows(records: &[WorkRecord]) -> Rows {
    let mut rows = Rows { streams: Vec::new(), work: Vec::with_capacity(records.len()) };
    for (mut stream, mut places) in by_stream(records) {
        // In order already but where kernels end in another order than they began in, which a stable sort makes use of.
        places.sort_by_key(|&place| records[place as usize].start);
        let (first_row, first) = (rows.streams.len(), rows.work.len());
        let mut free = FreeRows::default();
        for place in places {
            let WorkRecord { start, end, .. } = records[place as usize];
            let overlap = free.place(start, end);
            if first_row + overlap == rows.streams.len() {
                stream.overlap = u32::try_from(overlap).unwrap_or(u32::MAX);
                rows.streams.push(stream);
            }
            rows.work.push((StreamId::new(first_row + overlap), place));
        }
        if rows.streams.len() - first_row > 1 {
            rows.work[first..].sort_by_key(|&(row, _)| row);
        }
    }
    rows
}

/// The places of each stream's records.
fn by_stream(records: &[WorkRecord]) -> Vec<(Stream, Vec<u32>)> {
    let mut streams: Vec<(Stream, Vec<u32>)> = Vec::new();
    let mut known: FxHashMap<(u32, u32, u32), usize> = FxHashMap::default();
    for (place, record) in records.iter().enumerate() {
        let number = *known.entry((record.device, record.context, record.stream)).or_insert_with(|| {
            let device = DeviceId::new(record.device);
            let stream = Stream { device, context: record.context, number: record.stream, overlap: 0 };
            streams.push((stream, Vec::new()));
            streams.len() - 1
        });
        // The memory limit keeps a window far below this many records.
        streams[number].1.push(u32::try_from(place).unwrap_or(u32::MAX));
    }
    streams.sort_unstable_by_key(|(stream, _)| *stream);
    streams
}

/// The rows of one stream: which of them are free.
#[derive(Debug, Default)]
struct FreeRows {
    /// Until when each row is taken that was not free when last looked at, the first that is free again on top.
    taken: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The lowest on top.
    free: BinaryHeap<Reverse<usize>>,
}

impl FreeRows {
    /// Takes the lowest row that is free at `start`, a new one if there is none. Work comes in the order of its starts.
    fn place(&mut self, start: Timestamp, end: Timestamp) -> usize {
        while let Some(Reverse((_, row))) = self.taken.peek().filter(|Reverse((until, _))| *until <= start) {
            self.free.push(Reverse(*row));
            self.taken.pop();
        }
        let row = self.free.pop().map_or(self.taken.len(), |Reverse(row)| row);
        self.taken.push(Reverse((end, row)));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::{FreeRows, rows};
    use crate::{
        recording::WorkRecord,
        trace::{Detail, MemoryFill, Timestamp},
    };
    use proptest::prelude::*;

    fn record(context: u32, stream: u32, start: u64, end: u64) -> WorkRecord {
        let [start, end] = [start, end].map(Timestamp::from_unix_nanos);
        let detail = Detail::Fill(MemoryFill::default());
        WorkRecord { detail, device: 0, context, stream, start, end, correlation: 0, graph: None }
    }

    #[test]
    fn work_is_stream_by_stream_in_order_of_time_and_what_overlaps_is_beside_it() {
        let records = [
            record(2, 7, 0, 9),
            record(1, 8, 30, 40),
            record(1, 7, 5, 6),
            record(1, 8, 10, 25),
            record(1, 8, 12, 13),
            record(1, 8, 20, 21),
            record(1, 8, 20, 22),
        ];
        let found = rows(&records);
        let streams: Vec<_> = found.streams.iter().map(|row| (row.context, row.number, row.overlap)).collect();
        assert_eq!(streams, [(1, 7, 0), (1, 8, 0), (1, 8, 1), (1, 8, 2), (2, 7, 0)]);
        let work: Vec<_> = found.work.iter().map(|(row, place)| (row.index(), *place)).collect();
        assert_eq!(work, [(0, 2), (1, 3), (1, 1), (2, 4), (2, 5), (3, 6), (4, 0)]);
    }

    proptest! {
        #[test]
        fn work_is_on_the_lowest_row_that_is_free(
            mut work in prop::collection::vec((0_u64..40, 0_u64..20), 0..60),
        ) {
            work.sort_unstable();
            let mut rows = FreeRows::default();
            let mut until: Vec<u64> = Vec::new();
            for (start, length) in work {
                let end = start + length;
                let row = rows.place(Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
                let expected = until.iter().position(|&until| until <= start).unwrap_or(until.len());
                prop_assert_eq!(row, expected);
                until.resize(until.len().max(row + 1), 0);
                until[row] = end;
            }
        }
    }
}
