//! Rows: the tracks of a thread's spans, the streams of a GPU's work, and how time ranges nest on a row, since no
//! viewer can draw ranges that cross.

use super::{DeviceId, SpanData, SpanId, Timestamp, Trace, id::define_id};
use std::cmp::Reverse;

define_id! {
    /// The operating system's id of a thread, as debuggers, CUPTI and `top -H` show it.
    ///
    /// If the system has no readable id, it is a number that is unique in this process.
    pub struct ThreadId(u64);

    /// The id as a number.
    pub const fn as_u64;
}

define_id! {
    /// Names a [`Track`] of one trace.
    pub struct TrackId;

    /// The index of the track in [`Trace::tracks`](crate::Trace::tracks).
    pub fn index;
}

/// A row of properly nested spans of one thread.
///
/// Most threads have one track. A thread whose spans are exited out of order has more, since spans that overlap without
/// nesting cannot share a track, and no viewer can draw them on one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    pub(crate) thread: ThreadId,
    pub(crate) name: String,
    pub(crate) overlap: u32,
}

impl Track {
    /// The thread.
    pub fn thread(&self) -> ThreadId {
        self.thread
    }

    /// The thread's name.
    pub fn thread_name(&self) -> &str {
        &self.name
    }

    /// The number of the track within its thread: 0 for the main one; 1, 2, … for tracks of spans that overlap without
    /// nesting.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A display name: the thread's name, with the number of the track if that is not 0.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => self.name.clone(),
            overlap => format!("{} (overlap {overlap})", self.name),
        }
    }
}

define_id! {
    /// Names a [`Stream`] of one trace.
    pub struct StreamId;

    /// The index of the stream in [`Trace::streams`](crate::Trace::streams).
    pub fn index;
}

impl Default for StreamId {
    /// Returns the id of the first stream.
    fn default() -> Self {
        Self::new(0)
    }
}

/// A row of GPU work that does not overlap: a stream of a device, or a further row for concurrent work on that stream.
///
/// Kernels of one stream may overlap, through programmatic dependent launch or as branches of a graph, and no viewer
/// can draw them on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    pub(crate) device: DeviceId,
    pub(crate) context: u32,
    pub(crate) number: u32,
    pub(crate) overlap: u32,
}

impl Stream {
    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The driver's number for the context.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// The driver's number for the stream, unique in its context.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The number of the row within its stream: 0 for the main one; 1, 2, … for rows of overlapping work.
    pub fn overlap(&self) -> u32 {
        self.overlap
    }

    /// A display name: `stream 7`, with the number of the row if that is not 0.
    pub fn label(&self) -> String {
        match self.overlap {
            0 => format!("stream {}", self.number),
            overlap => format!("stream {} (overlap {overlap})", self.number),
        }
    }
}

impl Trace {
    /// Whether streams of a device belong to different contexts, which may number their streams alike.
    pub(crate) fn has_several_contexts(&self, device: DeviceId) -> bool {
        let mut contexts = self.streams.iter().filter(|stream| stream.device == device).map(Stream::context);
        contexts.next().is_some_and(|first| contexts.any(|context| context != first))
    }
}

/// Assigns time ranges to rows so that the ranges on each row nest, using few rows.
///
/// Two ranges nest if one contains the other, or if one ends before the other begins. Ranges must be sorted by start;
/// of those that start together, the outer comes first.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    /// The ends of the ranges that are open on each row, outermost first.
    rows: Vec<Vec<Timestamp>>,
}

impl Nesting {
    /// Puts a range on the first row where it nests, starting at `first`, and returns that row.
    pub(crate) fn place(&mut self, start: Timestamp, end: Timestamp, first: usize) -> usize {
        self.grow(first);
        let found = self.rows[first..].iter_mut().position(|open| fits(open, start, end));
        self.push(found.map(|row| first + row), end)
    }

    /// Puts a range on the `preferred` row if it nests there, or else on the first row where it nests, and returns that
    /// row.
    pub(crate) fn place_near(&mut self, start: Timestamp, end: Timestamp, preferred: usize) -> usize {
        self.grow(preferred);
        let found = match fits(&mut self.rows[preferred], start, end) {
            true => Some(preferred),
            false => self.rows.iter_mut().position(|open| fits(open, start, end)),
        };
        self.push(found, end)
    }

    /// Adds rows until there is one with this number.
    fn grow(&mut self, row: usize) {
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Vec::new());
        }
    }

    /// Puts a range on the row found, or on a new one, and returns the row.
    fn push(&mut self, found: Option<usize>, end: Timestamp) -> usize {
        let row = found.unwrap_or_else(|| {
            self.rows.push(Vec::new());
            self.rows.len() - 1
        });
        self.rows[row].push(end);
        row
    }
}

/// Returns the indices of time ranges in the order in which [`Nesting::place`] takes them: by start, of ranges that
/// start together the longest first, and equal ones as they come.
pub(crate) fn nesting_order(ranges: impl Iterator<Item = (Timestamp, Timestamp)>) -> Vec<usize> {
    let mut order: Vec<_> = ranges.enumerate().map(|(index, (start, end))| (start, Reverse(end), index)).collect();
    order.sort_unstable();
    order.into_iter().map(|(.., index)| index).collect()
}

/// Returns, for each span, the innermost span around it on its track. Spans come in the order in which they were
/// entered.
///
/// For most spans this is the parent; a file stores the parent only for the others.
pub(crate) fn enclosing(spans: &[SpanData]) -> Vec<Option<SpanId>> {
    let mut open: Vec<Vec<SpanId>> = Vec::new();
    let around = |(index, span): (usize, &SpanData)| {
        if open.len() <= span.track.index() {
            open.resize(span.track.index() + 1, Vec::new());
        }
        let open = &mut open[span.track.index()];
        let contains = |outer: &SpanData| span.start < outer.end && span.end <= outer.end;
        while open.pop_if(|outer| !contains(&spans[outer.index()])).is_some() {}
        let around = open.last().copied();
        open.push(SpanId::new(index));
        around
    };
    spans.iter().enumerate().map(around).collect()
}

/// Removes the ranges of a row that end before `start`, and returns whether the new range nests in the rest.
fn fits(open: &mut Vec<Timestamp>, start: Timestamp, end: Timestamp) -> bool {
    while open.pop_if(|end| *end <= start).is_some() {}
    open.last().is_none_or(|&outer| end <= outer)
}

#[cfg(test)]
mod tests {
    use super::Nesting;
    use crate::trace::Timestamp;
    use proptest::prelude::*;
    use std::cmp::Reverse;

    fn rows(ranges: &[(u64, u64)]) -> Vec<usize> {
        let mut nesting = Nesting::default();
        let at = Timestamp::from_unix_nanos;
        ranges.iter().map(|&(start, end)| nesting.place(at(start), at(end), 0)).collect()
    }

    #[test]
    fn ranges_that_nest_share_a_row_and_ranges_that_cross_do_not() {
        assert_eq!(rows(&[(0, 10), (0, 5), (5, 10), (6, 10), (10, 12)]), [0, 0, 0, 0, 0]);
        assert_eq!(rows(&[(0, 10), (5, 15), (6, 9), (11, 20)]), [0, 1, 0, 0]);
    }

    #[test]
    fn a_range_can_be_kept_off_the_first_rows() {
        let at = Timestamp::from_unix_nanos;
        assert_eq!(Nesting::default().place(at(0), at(1), 2), 2);
    }

    #[test]
    fn a_range_can_prefer_a_row() {
        let mut nesting = Nesting::default();
        let mut place = |start, end, preferred| {
            let at = Timestamp::from_unix_nanos;
            nesting.place_near(at(start), at(end), preferred)
        };
        assert_eq!(
            [place(0, 10, 0), place(5, 15, 0), place(6, 9, 1), place(7, 12, 1), place(16, 17, 1)],
            [0, 1, 1, 2, 1]
        );
    }

    proptest! {
        #[test]
        fn nothing_crosses_on_a_row(mut ranges in prop::collection::vec((0_u64..50, 0_u64..50), 0..40)) {
            ranges.iter_mut().for_each(|(start, end)| *end += *start);
            ranges.sort_by_key(|&(start, end)| (start, Reverse(end)));
            let rows = rows(&ranges);
            for (a, left) in ranges.iter().enumerate() {
                for (b, right) in ranges.iter().enumerate().skip(a + 1) {
                    prop_assert!(rows[a] != rows[b] || left.1 <= right.0 || right.1 <= left.1);
                }
            }
        }
    }
}
