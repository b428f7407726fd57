//! The timelines of a page: all recorded windows, item by item, as far as there is room.

use super::{
    packed::{Names, Packed, zigzag},
    selection::{Kind, Selection},
};
use crate::{
    analysis::TimeRange,
    export::{json::Object, work_text::WorkKey},
    trace::{Step, StepId, Timestamp, Trace},
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The timelines of the windows of a run.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    windows: Vec<WindowTimeline>,
    /// The number of windows still to come, if known.
    expected: usize,
    /// The number of windows without a timeline because there is no room.
    left_out: usize,
}

/// One window as it ran: the work of GPUs, and the spans and API calls of threads.
#[derive(Debug)]
struct WindowTimeline {
    label: String,
    /// The start of the first item, or of the window if that is earlier.
    start: Timestamp,
    duration: Duration,
    steps: Vec<Step>,
    rows: Vec<Row>,
    /// The items, lane by lane, each with the time since the start of the one before, its duration, its name, and, for
    /// GPU work, what launched it.
    items: Packed,
    notes: Vec<String>,
}

/// A stream or a thread.
#[derive(Debug)]
struct Row {
    label: String,
    is_gpu: bool,
    /// The number of items in each lane. Nested items are in the lane below those around them.
    lanes: Vec<u32>,
}

impl Timelines {
    /// The maximum number of bytes of items that a page keeps, a third less than they take in the file: about a million
    /// items, such as 400,000 kernels with the calls that launched them and the spans around these.
    const BYTES: usize = 6 << 20;
    /// The minimum number of bytes for which a window is worth showing: a few thousand items.
    const FEW: usize = 8 << 10;
    /// A step that took this many times longer than all those before is shown, even if others have to make room for it.
    const SLOWER: f64 = 1.5;

    /// Sets how many windows will be added, so that they share the room.
    pub(super) fn expect(&mut self, windows: usize) {
        self.expected = windows;
    }

    /// Adds a window. `detailed` are the steps that are kept in full if others are not.
    pub(super) fn add(&mut self, trace: &Trace, detailed: &[StepId], names: &mut Names) {
        let share = self.expected.max(1);
        self.expected = self.expected.saturating_sub(1);
        let slowest = |steps: &[Step]| steps.iter().map(Step::duration).max().unwrap_or_default();
        let before = self.windows.iter().map(|window| slowest(&window.steps)).max().unwrap_or_default();
        if slowest(trace.steps()) > before.mul_f64(Self::SLOWER) {
            while self.room() < Self::FEW && self.windows.len() > 1 {
                self.windows.pop();
                self.left_out += 1;
            }
        }
        let room = self.room() / share;
        if room < Self::FEW && trace.spans().len() + trace.work().len() > 0 {
            self.left_out += 1;
        } else {
            self.windows.extend(WindowTimeline::of(trace, detailed, names, room));
        }
    }

    fn room(&self) -> usize {
        Self::BYTES.saturating_sub(self.windows.iter().map(|window| window.items.len()).sum())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the index of the window that contains this range, and the nanoseconds from its start.
    pub(super) fn find(&self, range: &TimeRange) -> Option<(usize, u64)> {
        let has = |window: &WindowTimeline| {
            let is_inside = range.start >= window.start && range.start.since(window.start) <= window.duration;
            // Ranks run at the same time, and their steps have the same numbers, but not to the nanosecond.
            let mut steps = window.steps.iter();
            let is_its_step =
                |number| steps.any(|it| it.number() == number && it.start() + range.offset == range.start);
            is_inside && range.step.is_none_or(is_its_step)
        };
        let index = self.windows.iter().position(has)?;
        Some((index, nanos(range.start.since(self.windows[index].start))))
    }

    pub(super) fn write(&self, section: &mut Object<'_>) {
        if let more @ 1.. = self.left_out {
            section.string("note", &format!("{more} more windows have no timeline for lack of room."));
        }
        section.array_of_lines("windows", |windows| {
            self.windows.iter().for_each(|window| windows.object(|object| window.write(object)));
        });
    }
}

impl WindowTimeline {
    /// Returns the timeline of a window in about this many bytes, or `None` if there is nothing to show.
    fn of(trace: &Trace, detailed: &[StepId], names: &mut Names, bytes: usize) -> Option<Self> {
        let selection = Selection::of(trace, detailed, bytes);
        if selection.items.is_empty() {
            return None;
        }
        let duration = selection.end.max(trace.end()).since(selection.start);
        let rank = match trace.metadata().world_size {
            0 | 1 => String::new(),
            _ => format!("rank {}, ", trace.metadata().rank),
        };
        let mut packer = Packer::new(trace, &selection, names);
        let rows = packer.pack();
        let mut items = packer.items;
        items.shrink();
        Some(Self {
            label: format!("{rank}window {}", trace.window()),
            start: selection.start,
            duration,
            steps: trace.steps().to_vec(),
            rows,
            items,
            notes: selection.notes(trace),
        })
    }

    fn write(&self, object: &mut Object<'_>) {
        object.string("label", &self.label);
        object.number("duration", nanos(self.duration));
        object.array("steps", |steps| {
            for step in &self.steps {
                steps.array(|cells| {
                    cells.number(step.number());
                    // A step may have begun before everything recorded in it.
                    let from = step.start().max(self.start);
                    cells.number(nanos(from.since(self.start)));
                    cells.number(nanos(step.end().since(from)));
                });
            }
        });
        object.array("rows", |rows| {
            for row in &self.rows {
                rows.array(|cells| {
                    cells.string(&row.label);
                    cells.number(u8::from(row.is_gpu));
                    cells.array(|lanes| row.lanes.iter().for_each(|&items| lanes.number(items)));
                });
            }
        });
        object.array("notes", |notes| self.notes.iter().for_each(|note| notes.string(note)));
        self.items.write("items", object);
    }
}

/// Packs the items of a window.
struct Packer<'a, 'n> {
    trace: &'a Trace,
    selection: &'a Selection,
    names: &'n mut Names,
    callsites: Vec<u32>,
    kernels: FxHashMap<WorkKey, u32>,
    items: Packed,
    /// The position among all items of what launched the last piece of work: the next one's is often nearby.
    launcher: i64,
}

impl<'a, 'n> Packer<'a, 'n> {
    fn new(trace: &'a Trace, selection: &'a Selection, names: &'n mut Names) -> Self {
        let callsites = trace.callsites().iter().map(|callsite| names.index(callsite.name()) as u32).collect();
        let (kernels, items) = (FxHashMap::default(), Packed::with_capacity(selection.bytes()));
        Self { trace, selection, names, callsites, kernels, items, launcher: 0 }
    }

    /// Packs all lanes, and returns the rows that have any.
    fn pack(&mut self) -> Vec<Row> {
        let mut rows: Vec<Row> = Vec::new();
        let mut from = 0;
        for lanes in self.selection.lanes.chunk_by(|(row, _), (next, _)| row == next) {
            let mut row = self.row(lanes[0].0);
            for &(_, end) in lanes {
                self.pack_lane(from, end);
                row.lanes.push((end - from) as u32);
                from = end;
            }
            rows.push(row);
        }
        rows.retain(|row| row.lanes.iter().any(|&items| items > 0));
        rows
    }

    fn row(&self, row: usize) -> Row {
        let streams = self.trace.streams();
        match row.checked_sub(streams.len()) {
            None => {
                let label = format!("GPU {}, {}", streams[row].device(), streams[row].label());
                Row { label, is_gpu: true, lanes: Vec::new() }
            }
            Some(track) => Row { label: self.trace.tracks()[track].label(), is_gpu: false, lanes: Vec::new() },
        }
    }

    /// Packs the items of a lane, which are these of the selected ones.
    fn pack_lane(&mut self, from: usize, end: usize) {
        let selection = self.selection;
        let mut before = selection.start;
        for &id in &selection.items[from..end] {
            let item = selection.item(self.trace, id);
            let start = item.start.max(before);
            self.items.push(nanos(start.since(before)));
            self.items.push(nanos(item.end.max(start).since(start)));
            before = start;
            let name = self.name(id);
            self.items.push(name.into());
            if let Kind::Work(index) = selection.kind(id) {
                self.pack_launcher(index);
            }
        }
    }

    fn name(&mut self, id: u32) -> u32 {
        match self.selection.kind(id) {
            Kind::Span(index) => self.callsites[self.trace.spans[index].callsite.index()],
            Kind::Call(index) => self.names.index(&self.trace.api_calls[index].name) as u32,
            Kind::Work(index) => {
                let Some(work) = self.trace.work_at(index..index + 1).next() else { return 0 };
                let known = self.kernels.entry(WorkKey::of(work));
                *known.or_insert_with(|| self.names.work(&work.name().to_string()) as u32)
            }
        }
    }

    /// Packs the position of the call, or else of the span, that launched a piece of work: 0 if it is not shown, or one
    /// more than the difference from the previous one.
    fn pack_launcher(&mut self, index: usize) {
        let place = self.trace.work_at(index..index + 1).next().and_then(|work| self.selection.launcher(work));
        let Some(place) = place else { return self.items.push(0) };
        let place = i64::from(place);
        let difference = place - std::mem::replace(&mut self.launcher, place);
        self.items.push(1 + zigzag(difference));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
