//! Which row each piece of work is on.

use crate::{
    gpu::WorkRecord,
    quick::QuickMap,
    trace::{DeviceId, Stream, StreamId, Timestamp},
};

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
        let mut until: Vec<Timestamp> = Vec::new();
        for place in places {
            let WorkRecord { start, end, .. } = records[place as usize];
            let free = until.iter().position(|until| *until <= start);
            let overlap = free.unwrap_or_else(|| {
                stream.overlap = u32::try_from(until.len()).unwrap_or(u32::MAX);
                rows.streams.push(stream);
                until.push(start);
                until.len() - 1
            });
            until[overlap] = end;
            rows.work.push((StreamId::new(first_row + overlap), place));
        }
        if until.len() > 1 {
            rows.work[first..].sort_by_key(|&(row, _)| row);
        }
    }
    rows
}

/// The places of each stream's records.
fn by_stream(records: &[WorkRecord]) -> Vec<(Stream, Vec<u32>)> {
    let mut streams: Vec<(Stream, Vec<u32>)> = Vec::new();
    let mut known: QuickMap<(u32, u32, u32), usize> = QuickMap::default();
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
