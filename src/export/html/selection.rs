//! The items of a window that its timeline shows, lane by lane.

use crate::{
    report::units,
    trace::{Span, SpanId, StepId, Timestamp, Trace, Work},
};
use std::time::Duration;

/// The items of a window that its timeline shows, in the order in which they are written: streams first, then threads,
/// each lane by lane.
///
/// If there is no room for all of them, the innermost spans and calls are dropped first, and then the shortest GPU
/// work. A window may have millions of items, so an item is a four-byte number until it is written.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) items: Vec<u32>,
    /// The lanes: the row, and the end of its items.
    pub(super) lanes: Vec<(usize, usize)>,
    /// The position among the items of each span and call that launched work.
    places: Vec<u32>,
    spans: usize,
    calls: usize,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    limits: Limits,
    /// The steps shown in more detail than others.
    detailed: Vec<StepId>,
    left_out: LeftOut,
}

/// What an item is, with its index in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Span(usize),
    Call(usize),
    Work(usize),
}

/// When an item ran, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) is_gpu: bool,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    row: usize,
    level: usize,
}

/// What is shown if there is no room for everything.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The number of levels of spans and calls that are shown in all steps, and in the detailed ones.
    levels: usize,
    detailed_levels: usize,
    /// The shortest GPU work that is shown.
    shortest: Duration,
}

/// The number of items that are not shown.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    inner: usize,
    short: usize,
    deep: usize,
}

/// The number of items in a window, by what decides whether they are shown.
struct Counts {
    /// Spans and calls by level, outside of detailed steps and in these.
    host: [[usize; Selection::LEVELS]; 2],
    /// GPU work by the binary logarithm of its nanoseconds.
    gpu: [usize; 64],
    start: Timestamp,
    end: Timestamp,
}

impl Selection {
    /// The maximum number of items drawn below each other on a row: two screens of a laptop.
    pub(super) const LEVELS: usize = 100;
    /// Bytes that a piece of GPU work takes in a page, and a span or a call: 6.0 to 6.5 and 5.0 to 6.4 in the windows
    /// of `benches/html.rs`, rounded up.
    const GPU_BYTES: usize = 7;
    const HOST_BYTES: usize = 7;

    /// Selects items that take about this many bytes.
    pub(super) fn of(trace: &Trace, detailed: &[StepId], bytes: usize) -> Self {
        let scan = Scan::new(trace, detailed);
        let counts = scan.count();
        let limits = Limits::of(&counts, bytes);
        let mut left_out = LeftOut::default();
        let mut lanes: Vec<Vec<usize>> = vec![Vec::new(); trace.streams().len() + trace.tracks().len()];
        scan.each(|_, item, is_detailed| {
            let reason = limits.reason(&item, is_detailed, &mut left_out);
            if let Some(count) = reason {
                *count += 1;
                return;
            }
            let lanes = &mut lanes[item.row];
            lanes.resize(lanes.len().max(item.level + 1), 0);
            lanes[item.level] += 1;
        });
        let mut selection = Self {
            items: vec![0; lanes.iter().flatten().sum()],
            lanes: Vec::new(),
            places: Vec::new(),
            spans: trace.spans().len(),
            calls: trace.api_calls().len(),
            start: counts.start,
            end: counts.end,
            limits,
            detailed: detailed.to_vec(),
            left_out,
        };
        selection.fill(&scan, lanes);
        selection
    }

    /// Puts the items into their lanes, in the order of time. `lanes` has the number of items of each.
    fn fill(&mut self, scan: &Scan<'_>, mut lanes: Vec<Vec<usize>>) {
        let mut next = 0;
        for (row, levels) in lanes.iter_mut().enumerate() {
            for level in levels {
                let items = std::mem::replace(level, next);
                next += items;
                self.lanes.push((row, next));
            }
        }
        let (limits, mut ignored) = (self.limits, LeftOut::default());
        scan.each(|id, item, is_detailed| {
            if limits.reason(&item, is_detailed, &mut ignored).is_none() {
                let next = &mut lanes[item.row][item.level];
                self.items[*next] = id;
                *next += 1;
            }
        });
        let mut from = 0;
        for &(_, end) in &self.lanes {
            // Calls come after all spans. Lanes of one kind are already sorted, which is quick to detect.
            self.items[from..end].sort_unstable_by_key(|&id| (scan.item(id).start, id));
            from = end;
        }
        if !scan.trace.work.is_empty() {
            self.places = vec![u32::MAX; self.spans + self.calls];
            for (place, &id) in self.items.iter().enumerate() {
                if let Some(of_item) = self.places.get_mut(id as usize) {
                    *of_item = place as u32;
                }
            }
        }
    }

    /// Returns roughly how many bytes the items take in the page.
    pub(super) fn bytes(&self) -> usize {
        let host = self.items.iter().filter(|&&id| (id as usize) < self.spans + self.calls).count();
        host * Self::HOST_BYTES + (self.items.len() - host) * Self::GPU_BYTES
    }

    pub(super) fn kind(&self, id: u32) -> Kind {
        kind(id as usize, self.spans, self.calls)
    }

    /// Returns when an item ran.
    pub(super) fn item(&self, trace: &Trace, id: u32) -> Item {
        item(trace, self.kind(id), 0)
    }

    /// Returns the place of the call, or else of the span, that launched a piece of work, if that is shown.
    pub(super) fn launcher(&self, work: Work<'_>) -> Option<u32> {
        let shown = |id: usize| self.places.get(id).copied().filter(|&place| place != u32::MAX);
        let call = work.call().and_then(|call| shown(self.spans + call.id().index()));
        call.or_else(|| shown(work.span()?.id().index()))
    }

    /// Returns sentences about what is left out.
    pub(super) fn notes(&self, trace: &Trace) -> Vec<String> {
        let LeftOut { inner, short, deep } = self.left_out;
        let mut notes = Vec::new();
        if inner > 0 {
            let nested = match self.limits.levels {
                0 => String::new(),
                1 => " nested in others".to_owned(),
                levels => format!(" nested more than {levels} deep"),
            };
            let mut numbers: Vec<_> = self.detailed.iter().map(|id| trace.steps()[id.index()].number()).collect();
            numbers.sort_unstable();
            let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
            let except = match (numbers.len(), self.limits.detailed_levels > self.limits.levels) {
                (0, _) | (_, false) => String::new(),
                (1, _) => format!(", except in step {}", numbers[0]),
                _ => format!(", except in steps {}", numbers.join(", ")),
            };
            notes.push(format!("{inner} spans and calls{nested} are left out{except}"));
        }
        if short > 0 {
            let shortest = units::time(self.limits.shortest);
            notes.push(format!("{short} kernels and copies shorter than {shortest} are left out"));
        }
        if deep > 0 {
            notes.push(format!("{deep} items nested more than {} deep are left out", Self::LEVELS));
        }
        notes
    }
}

impl Limits {
    /// Returns what fits into this many bytes.
    fn of(counts: &Counts, bytes: usize) -> Self {
        // The steps that people look at first get up to a quarter for their inner spans.
        let [others, detailed] = &counts.host;
        let (detailed_levels, used) = levels(detailed, bytes / 4);
        let bytes = bytes.saturating_sub(used);
        let all_gpu = counts.gpu.iter().sum::<usize>() * Selection::GPU_BYTES;
        // Without room for all GPU work, the outer spans get an eighth.
        let room = if all_gpu <= bytes { bytes } else { bytes / 8 * 7 };
        let (mut used, mut shortest) = (0, Duration::ZERO);
        for (logarithm, &items) in counts.gpu.iter().enumerate().rev() {
            let more = items * Selection::GPU_BYTES;
            if used + more > room {
                shortest = Duration::from_nanos(2 << logarithm.min(62));
                break;
            }
            used += more;
        }
        let (levels, _) = levels(others, bytes.saturating_sub(used));
        Self { levels, detailed_levels: detailed_levels.max(levels), shortest }
    }

    /// Returns the count of an item that is left out, or `None` if it is shown.
    fn reason<'a>(&self, item: &Item, is_detailed: bool, left_out: &'a mut LeftOut) -> Option<&'a mut usize> {
        let levels = if is_detailed { self.detailed_levels } else { self.levels };
        match item {
            Item { is_gpu: true, start, end, .. } => (end.since(*start) < self.shortest).then_some(&mut left_out.short),
            item if item.level >= Selection::LEVELS => Some(&mut left_out.deep),
            item => (item.level >= levels).then_some(&mut left_out.inner),
        }
    }
}

/// Returns the number of outer levels that fit into this many bytes, and the bytes that they take.
fn levels(counts: &[usize], bytes: usize) -> (usize, usize) {
    let mut used = 0;
    for (level, items) in counts.iter().enumerate() {
        let more = items * Selection::HOST_BYTES;
        if used + more > bytes {
            return (level, used);
        }
        used += more;
    }
    (Selection::LEVELS, used)
}

/// Goes through the items of a window.
struct Scan<'a> {
    trace: &'a Trace,
    /// The number of spans around each span on its row, or around each call in it, as far as it matters.
    depths: Vec<u8>,
    detailed: Vec<(Timestamp, Timestamp)>,
}

impl<'a> Scan<'a> {
    fn new(trace: &'a Trace, detailed: &[StepId]) -> Self {
        // A parent comes before its children.
        let mut depths: Vec<u8> = Vec::with_capacity(trace.spans().len());
        for span in trace.spans() {
            let outer = span.stack().skip(1).find(|outer| outer.track_id() == span.track_id());
            depths.push(outer.map_or(0, |outer| depths[outer.id().index()].saturating_add(1)));
        }
        let steps = detailed.iter().map(|id| &trace.steps()[id.index()]);
        Self { trace, depths, detailed: steps.map(|step| (step.start(), step.end())).collect() }
    }

    /// Calls with the id of each item, the item, and whether it begins in a detailed step.
    fn each(&self, mut of: impl FnMut(u32, Item, bool)) {
        let count = self.trace.spans.len() + self.trace.api_calls.len() + self.trace.work.len();
        for id in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            let item = self.item(id);
            let is_detailed = self.detailed.iter().any(|&(start, end)| item.start >= start && item.start < end);
            of(id, item, is_detailed);
        }
    }

    fn item(&self, id: u32) -> Item {
        let kind = kind(id as usize, self.trace.spans.len(), self.trace.api_calls.len());
        let level = match kind {
            Kind::Span(index) => self.depths[index].into(),
            Kind::Call(index) => {
                let call = &self.trace.api_calls[index];
                let around = call.span.filter(|span| self.trace.spans[span.index()].track == call.track);
                around.map_or(0, |span| usize::from(self.depths[span.index()]) + 1)
            }
            Kind::Work(_) => 0,
        };
        item(self.trace, kind, level)
    }

    fn count(&self) -> Counts {
        let (start, end) = (self.trace.start(), self.trace.end());
        let mut counts = Counts { host: [[0; Selection::LEVELS]; 2], gpu: [0; 64], start, end };
        self.each(|_, item, is_detailed| {
            counts.start = counts.start.min(item.start);
            counts.end = counts.end.max(item.end);
            if item.is_gpu {
                let nanos = u64::try_from(item.end.since(item.start).as_nanos()).unwrap_or(u64::MAX);
                counts.gpu[nanos.max(1).ilog2() as usize] += 1;
            } else if let Some(count) = counts.host[usize::from(is_detailed)].get_mut(item.level) {
                *count += 1;
            }
        });
        counts
    }
}

/// Returns what an item is: numbers are those of spans first, then of calls, and then of work.
fn kind(id: usize, spans: usize, calls: usize) -> Kind {
    match id {
        _ if id < spans => Kind::Span(id),
        _ if id < spans + calls => Kind::Call(id - spans),
        _ => Kind::Work(id - spans - calls),
    }
}

fn item(trace: &Trace, kind: Kind, level: usize) -> Item {
    let streams = trace.streams().len();
    match kind {
        Kind::Span(index) => {
            let span: Span<'_> = trace.span(SpanId::new(index));
            let row = streams + span.track_id().index();
            Item { is_gpu: false, start: span.start(), end: span.end(), row, level }
        }
        Kind::Call(index) => {
            let call = &trace.api_calls[index];
            Item { is_gpu: false, start: call.start, end: call.end, row: streams + call.track.index(), level }
        }
        Kind::Work(index) => {
            let work = &trace.work[index];
            Item { is_gpu: true, start: work.start, end: work.end, row: work.stream.index(), level }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Item, LeftOut, Limits, Selection};
    use crate::trace::sample::at;
    use std::time::Duration;

    /// A window with 16,000 pieces of work of about a microsecond, and three levels of spans and calls.
    fn counts() -> Counts {
        let mut counts = Counts { host: [[0; Selection::LEVELS]; 2], gpu: [0; 64], start: at(0), end: at(9) };
        counts.host[0][..3].copy_from_slice(&[10, 1_000, 10_000]);
        counts.host[1][..3].copy_from_slice(&[1, 100, 1_000]);
        (counts.gpu[10], counts.gpu[12]) = (14_000, 2_000);
        counts
    }

    fn limits(bytes: usize) -> (usize, usize, Duration) {
        let Limits { levels, detailed_levels, shortest } = Limits::of(&counts(), bytes);
        (levels, detailed_levels, shortest)
    }

    #[test]
    fn inner_spans_go_before_gpu_work_and_stay_in_detailed_steps() {
        let all = Selection::LEVELS;
        assert_eq!(limits(1 << 20), (all, all, Duration::ZERO));
        // All work, all of the detailed steps, and of the others what is left.
        assert_eq!(limits(150_000), (2, all, Duration::ZERO));
        assert_eq!(limits(120_000), (1, all, Duration::ZERO));
        // Work that takes less than 2.048 µs has no room.
        assert_eq!(limits(40_000), (2, all, Duration::from_nanos(2_048)));
        assert_eq!(limits(0), (0, 0, Duration::from_nanos(8_192)));
    }

    #[test]
    fn items_are_counted_by_why_they_are_left_out() {
        let limits = Limits { levels: 1, detailed_levels: 2, shortest: Duration::from_micros(2) };
        let item = |is_gpu, level, micros| Item { is_gpu, start: at(0), end: at(micros), row: 0, level };
        let mut left_out = LeftOut::default();
        for (item, is_detailed) in [
            (item(true, 0, 1), true),
            (item(true, 0, 2), false),
            (item(false, 0, 1), false),
            (item(false, 1, 1), false),
            (item(false, 1, 1), true),
            (item(false, 2, 1), true),
            (item(false, 100, 1), true),
        ] {
            if let Some(count) = limits.reason(&item, is_detailed, &mut left_out) {
                *count += 1;
            }
        }
        assert_eq!((left_out.short, left_out.inner, left_out.deep), (1, 2, 1));
    }
}
