//! Steps and spans as ranges of time on GPUs.

use super::index_ranges::index_ranges;
use crate::trace::{GpuAnnotation, Nesting, SpanId, StepId, Stream, StreamId, Timestamp, Torch, Trace};
use std::cmp::Reverse;

/// The range from the first to the last work that a step or span caused on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GpuRange {
    pub(super) cause: Cause,
    /// The stream's first row, even if some of the work is on its other rows.
    pub(super) stream: StreamId,
    /// The row on which the range is drawn: 0 if it nests with the work on the stream's first row. Ranges that would
    /// cross, as when threads share a stream, are on rows 1, 2, ….
    pub(super) row: usize,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
}

/// The step, span or annotation that a range belongs to.
///
/// Causes are in the order in which equal ranges nest: steps enclose spans, and spans enclose their children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Step(StepId),
    Span(SpanId),
    /// An annotation of a PyTorch trace, by its index.
    Annotation(usize),
}

/// Returns the ranges of a trace on its streams: the annotations in a PyTorch trace, and otherwise those of steps and
/// spans. They come stream by stream, in the order of their starts, outer before inner.
pub(super) fn gpu_ranges(trace: &Trace) -> Vec<GpuRange> {
    match trace.torch() {
        Some(torch) => annotations(trace, torch),
        None => steps_and_spans(trace),
    }
}

/// Returns the ranges of PyTorch's annotations. They were extended by a nanosecond at both ends, so they may cut
/// through adjacent work.
fn annotations(trace: &Trace, torch: &Torch) -> Vec<GpuRange> {
    let range = |(index, it): (usize, &GpuAnnotation)| {
        let cause = Cause::Annotation(index);
        GpuRange { cause, stream: it.stream, row: 0, start: it.start, end: it.end }
    };
    let mut ranges: Vec<_> = torch.gpu_annotations.iter().enumerate().map(range).collect();
    ranges.sort_by_key(|range| (range.stream, range.start, Reverse(range.end)));
    let of_rows = index_ranges(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
    for ranges in ranges.chunk_by_mut(|a, b| a.stream == b.stream) {
        let stream = ranges[0].stream;
        let work = trace.work_at(of_rows[stream.index()].clone()).filter(|work| work.stream_id() == stream);
        let work: Vec<_> = work.map(|work| (work.start(), work.end())).collect();
        place(ranges, &work);
    }
    ranges
}

/// Puts the ranges of a stream on rows where they nest, with each other and with the work on the stream's first row.
fn place(ranges: &mut [GpuRange], work: &[(Timestamp, Timestamp)]) {
    let mut nesting = Nesting::default();
    for range in ranges {
        let crosses = contains(work, range.start) || contains(work, range.end);
        range.row = nesting.place(range.start, range.end, crosses.into());
    }
}

/// Returns the range of every step on every stream, and of every span that caused at least two pieces of work there,
/// itself or through nested spans.
fn steps_and_spans(trace: &Trace) -> Vec<GpuRange> {
    if trace.work().len() == 0 {
        return Vec::new();
    }
    let parents: Vec<_> = trace.spans().map(|span| span.parent().map(|parent| parent.id().index())).collect();
    let mut steps = Extents::new(trace.steps().len());
    let mut spans = Extents::new(parents.len());
    let of_rows = index_ranges(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
    let mut ranges = Vec::new();
    for rows in streams(trace) {
        let mut own_row = Vec::new();
        for &row in &rows {
            for work in trace.work_at(of_rows[row.index()].clone()).filter(|work| work.stream_id() == row) {
                let extent = Extent { start: work.start(), end: work.end(), work: 1 };
                // If all work is on one row, a range begins and ends with work of that row and cannot cut through it.
                if row == rows[0] && rows.len() > 1 {
                    own_row.push((work.start(), work.end()));
                }
                if let Some(step) = work.step_id() {
                    steps.add(step.index(), extent);
                }
                if let Some(span) = work.span() {
                    spans.add(span.id().index(), extent);
                }
            }
        }
        let first = ranges.len();
        let mut found = |cause, Extent { start, end, .. }| {
            ranges.push(GpuRange { cause, stream: rows[0], row: 0, start, end });
        };
        steps.drain(|_| None, |step, extent| found(Cause::Step(StepId::new(step)), extent));
        spans.drain(
            |span| parents[span],
            |span, extent| {
                if extent.work >= 2 {
                    found(Cause::Span(SpanId::new(span)), extent);
                }
            },
        );
        let found = &mut ranges[first..];
        // The stable sort is fast on input that is mostly sorted, as this is, backwards.
        found.sort_by_key(|range| (range.start, Reverse(range.end), range.cause));
        place(found, &own_row);
    }
    ranges
}

/// Returns the rows of each stream, the first row first.
fn streams(trace: &Trace) -> Vec<Vec<StreamId>> {
    let stream = |row: &StreamId| trace.streams()[row.index()];
    let mut rows: Vec<_> = (0..trace.streams().len()).map(StreamId::new).collect();
    // Last by overlap.
    rows.sort_by_key(stream);
    let same = |a: &StreamId, b: &StreamId| Stream { overlap: 0, ..stream(a) } == Stream { overlap: 0, ..stream(b) };
    let mut streams: Vec<_> = rows.chunk_by(same).map(<[_]>::to_vec).collect();
    streams.sort_unstable_by_key(|rows| rows[0]);
    streams
}

/// Returns whether a moment lies inside one of these ranges, which are in order and do not overlap.
fn contains(ranges: &[(Timestamp, Timestamp)], at: Timestamp) -> bool {
    let after = ranges.partition_point(|&(start, _)| start < at);
    after.checked_sub(1).is_some_and(|before| at < ranges[before].1)
}

/// The time from the start of the first work to the end of the last, and the number of pieces of work.
#[derive(Clone, Copy)]
struct Extent {
    start: Timestamp,
    end: Timestamp,
    work: u32,
}

/// The extents of steps or of spans on one stream.
struct Extents {
    /// The extent of each owner.
    extents: Vec<Option<Extent>>,
    /// The number of owners with an extent.
    count: usize,
    /// The last owner with an extent.
    last: usize,
}

impl Extents {
    fn new(count: usize) -> Self {
        Self { extents: vec![None; count], count: 0, last: 0 }
    }

    /// Extends the extent of an owner.
    fn add(&mut self, owner: usize, more: Extent) {
        match &mut self.extents[owner] {
            Some(extent) => {
                extent.start = extent.start.min(more.start);
                extent.end = extent.end.max(more.end);
                extent.work = extent.work.saturating_add(more.work);
            }
            none => {
                *none = Some(more);
                self.count += 1;
                self.last = self.last.max(owner);
            }
        }
    }

    /// Removes all extents, adds each to that of its parent, and calls `each` with it. A parent has a lower number and
    /// comes later, so its extent is then complete.
    fn drain(&mut self, parent: impl Fn(usize) -> Option<usize>, mut each: impl FnMut(usize, Extent)) {
        for owner in (0..=self.last).rev() {
            if self.count == 0 {
                break;
            }
            let Some(extent) = self.extents[owner].take() else { continue };
            self.count -= 1;
            if let Some(parent) = parent(owner) {
                self.add(parent, extent);
            }
            each(owner, extent);
        }
        self.last = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, GpuRange, gpu_ranges};
    use crate::trace::{
        SpanId, StepId, StreamId, Trace,
        sample::{at, gpu_trace},
    };

    fn range(cause: Cause, stream: usize, row: usize, start: u64, end: u64) -> GpuRange {
        GpuRange { cause, stream: StreamId::new(stream), row, start: at(start), end: at(end) }
    }

    fn step(step: usize) -> Cause {
        Cause::Step(StepId::new(step))
    }

    fn span(span: usize) -> Cause {
        Cause::Span(SpanId::new(span))
    }

    #[test]
    fn steps_and_spans_reach_over_their_work_on_each_stream() {
        let expected = [
            range(step(0), 0, 0, 5, 80),
            range(span(0), 0, 0, 5, 80),
            range(step(1), 0, 0, 105, 180),
            range(span(3), 0, 0, 105, 180),
            // Stream 8 has a second row, on which its work goes on while that of the first is over.
            range(step(0), 1, 0, 60, 75),
            range(span(0), 1, 0, 60, 75),
            range(span(2), 1, 0, 60, 75),
            range(step(1), 1, 0, 160, 175),
            range(span(3), 1, 0, 160, 175),
            range(span(5), 1, 0, 160, 175),
        ];
        assert_eq!(gpu_ranges(&gpu_trace()), expected);
    }

    #[test]
    fn a_range_that_would_cross_is_on_another_row() {
        let mut trace = gpu_trace();
        // The work of `backward` on stream 7 now begins before that of `forward` is over, as if a second thread had
        // caused it.
        for work in trace.work.iter_mut().filter(|work| work.stream == StreamId::new(0)) {
            work.step = None;
            work.span = Some(SpanId::new(if work.start == at(5) || work.start == at(50) { 1 } else { 2 }));
        }
        let ranges: Vec<_> = gpu_ranges(&trace).into_iter().filter(|range| range.stream == StreamId::new(0)).collect();
        let expected = [range(span(0), 0, 0, 5, 205), range(span(1), 0, 0, 5, 80), range(span(2), 0, 1, 20, 205)];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn a_range_that_would_cut_through_work_is_on_another_row() {
        let mut trace = gpu_trace();
        // Work of the second row now begins while other work of the first is going on, and it alone is the span's.
        for work in trace.work.iter_mut().filter(|work| work.stream == StreamId::new(1)) {
            (work.step, work.span) = (None, None);
        }
        let ranges = gpu_ranges(&trace);
        assert!(ranges.contains(&range(step(0), 1, 1, 65, 75)), "{ranges:?}");
    }

    #[test]
    fn no_work_gives_no_ranges() {
        assert_eq!(gpu_ranges(&Trace { work: Vec::new(), ..gpu_trace() }), []);
        assert_eq!(gpu_ranges(&Trace::default()), []);
    }
}
