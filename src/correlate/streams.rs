//! An assignment of GPU work to rows on which it does not overlap.

use crate::{
    recording::WorkRecord,
    trace::{DeviceId, Stream, StreamId, Timestamp},
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::BinaryHeap};

/// Rows on which no work overlaps, and the work on each.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) streams: Vec<Stream>,
    /// The row and the index of each record, row by row, in order of time.
    pub(super) work: Vec<(StreamId, u32)>,
}

/// Assigns each record to a row. The rows are the streams, in the order of their numbers, and after each stream further
/// rows for work that overlaps on it, which no viewer can draw on one row.
pub(super) fn rows(records: &[WorkRecord]) -> Rows {
    let mut rows = Rows { streams: Vec::new(), work: Vec::with_capacity(records.len()) };
    for (mut stream, mut indices) in by_stream(records) {
        // Already sorted, except where kernels ended in another order than they began, so a stable sort is quick.
        indices.sort_by_key(|&index| records[index as usize].start);
        let (first_row, first) = (rows.streams.len(), rows.work.len());
        let mut free = FreeRows::default();
        for index in indices {
            let WorkRecord { start, end, .. } = records[index as usize];
            let overlap = free.take(start, end);
            if first_row + overlap == rows.streams.len() {
                stream.overlap = u32::try_from(overlap).unwrap_or(u32::MAX);
                rows.streams.push(stream);
            }
            rows.work.push((StreamId::new(first_row + overlap), index));
        }
        if rows.streams.len() - first_row > 1 {
            rows.work[first..].sort_by_key(|&(row, _)| row);
        }
    }
    rows
}

/// Returns the indices of each stream's records, in the order of the streams.
fn by_stream(records: &[WorkRecord]) -> Vec<(Stream, Vec<u32>)> {
    let mut streams: Vec<(Stream, Vec<u32>)> = Vec::new();
    let mut indices: FxHashMap<(u32, u32, u32), usize> = FxHashMap::default();
    for (index, record) in records.iter().enumerate() {
        let stream = *indices.entry((record.device, record.context, record.stream)).or_insert_with(|| {
            let device = DeviceId::new(record.device);
            let stream = Stream { device, context: record.context, number: record.stream, overlap: 0 };
            streams.push((stream, Vec::new()));
            streams.len() - 1
        });
        // The memory limit keeps a window far below this many records.
        streams[stream].1.push(u32::try_from(index).unwrap_or(u32::MAX));
    }
    streams.sort_unstable_by_key(|(stream, _)| *stream);
    streams
}

/// The rows of one stream, by whether they are free.
#[derive(Debug, Default)]
struct FreeRows {
    /// The rows in use and when each becomes free, the earliest on top.
    taken: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The free rows, the lowest on top.
    free: BinaryHeap<Reverse<usize>>,
}

impl FreeRows {
    /// Takes the lowest row that is free at `start`, or a new one. Work must come in the order of its starts.
    fn take(&mut self, start: Timestamp, end: Timestamp) -> usize {
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
    fn work_is_sorted_by_stream_and_time_and_overlaps_have_rows_of_their_own() {
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
        let work: Vec<_> = found.work.iter().map(|(row, index)| (row.index(), *index)).collect();
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
                let row = rows.take(Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
                let expected = until.iter().position(|&until| until <= start).unwrap_or(until.len());
                prop_assert_eq!(row, expected);
                until.resize(until.len().max(row + 1), 0);
                until[row] = end;
            }
        }
    }
}
