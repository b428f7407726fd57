//! One step as it ran, item by item.

use super::names::Names;
use crate::{
    export::{json::Object, work_key::WorkKey},
    report::units,
    trace::{Step, Timestamp, Trace},
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// One step as it ran: the spans and API calls of threads, and the work of GPUs.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) step: u64,
    pub(super) duration: Duration,
    window: u32,
    rows: Vec<Row>,
    items: Vec<Item>,
    left_out: LeftOut,
}

/// The items of a step that are not shown.
#[derive(Clone, Copy, Debug, Default)]
struct LeftOut {
    /// The number of items that are too short.
    short: usize,
    /// The time of the longest of these.
    longest: Duration,
    /// The number of items that are nested too deeply.
    deep: usize,
}

/// A thread or a stream.
#[derive(Debug)]
struct Row {
    label: String,
    /// The number of lines that nested items take.
    levels: u32,
}

/// A span, an API call, or a piece of GPU work. A page keeps many of them, so they are small.
#[derive(Clone, Copy, Debug)]
struct Item {
    key: Key,
    row: u32,
    level: u32,
    /// Nanoseconds from the start of the step.
    start: u64,
    nanos: u64,
    name: u32,
    /// The call, or else the span, that launched it.
    link: Option<Key>,
}

/// The identity of an item: its kind, and its index in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Span(u32),
    Call(u32),
    Work(u32),
}

impl Timeline {
    /// The most items of a step. Past that, the shortest are left out.
    const ITEMS: usize = 20_000;
    /// The most items that are drawn below each other on a row: two screens of a laptop.
    const LEVELS: usize = 100;

    /// Returns the timeline of a step.
    pub(super) fn of(trace: &Trace, step: &Step, names: &mut Names) -> Self {
        let mut items = Items { trace, step, items: Vec::new(), left_out: LeftOut::default() };
        let depths = depths(trace);
        items.add_spans(names, &depths);
        items.add_calls(names, &depths);
        drop(depths);
        items.add_work(names);
        items.shorten();
        let Items { mut items, left_out, .. } = items;
        items.sort_by_key(|item| (item.start, std::cmp::Reverse(item.nanos), item.row, item.level));
        items.shrink_to_fit();
        let rows = rows(trace, &mut items);
        let (number, duration) = (step.number(), step.duration());
        Self { step: number, duration, window: trace.window(), rows, items, left_out }
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        object.string("label", &format!("step {} of window {}", self.step, self.window));
        object.number("number", self.step);
        object.number("duration", self.duration.as_nanos());
        if let Some(note) = self.left_out.note() {
            object.string("note", &note);
        }
        object.array("rows", |rows| {
            for Row { label, levels } in &self.rows {
                rows.array(|row| {
                    row.string(label);
                    row.number(*levels);
                });
            }
        });
        let indices: FxHashMap<Key, usize> =
            self.items.iter().enumerate().map(|(index, item)| (item.key, index)).collect();
        let mut column = |key, of: &mut dyn FnMut(&Item) -> i64| {
            object.array(key, |array| self.items.iter().for_each(|item| array.number(of(item))));
        };
        let signed = |nanos: u64| i64::try_from(nanos).unwrap_or(i64::MAX);
        let mut before = 0;
        column("start", &mut |item| signed(item.start) - std::mem::replace(&mut before, signed(item.start)));
        column("length", &mut |item| signed(item.nanos));
        column("row", &mut |item| item.row.into());
        column("level", &mut |item| item.level.into());
        column("name", &mut |item| item.name.into());
        let link = |item: &Item| item.link.and_then(|key| indices.get(&key)).map_or(-1, |&index| index as i64);
        column("link", &mut |item| link(item));
    }
}

/// The items of a step, while they are found.
struct Items<'a> {
    trace: &'a Trace,
    step: &'a Step,
    items: Vec<Item>,
    left_out: LeftOut,
}

impl Items<'_> {
    /// Adds an item, as far as it is in the step.
    fn add(&mut self, item: Item, start: Timestamp, end: Timestamp) {
        let (from, to) = (start.max(self.step.start()), end.min(self.step.end()));
        if !(from < to || (from == to && start == end && from < self.step.end())) {
            return;
        }
        if item.level >= Timeline::LEVELS as u32 {
            self.left_out.deep += 1;
            return;
        }
        let nanos = |from: Timestamp, to: Timestamp| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
        self.items.push(Item { start: nanos(self.step.start(), from), nanos: nanos(from, to), ..item });
        // A step may have a million items, which are not all kept until the end.
        if self.items.len() >= Timeline::ITEMS * 3 / 2 {
            self.shorten();
        }
    }

    /// Leaves out the shortest items if there are too many.
    fn shorten(&mut self) {
        let Some(short @ 1..) = self.items.len().checked_sub(Timeline::ITEMS) else { return };
        let (_, longest, _) = self.items.select_nth_unstable_by_key(short - 1, |item| item.nanos);
        self.left_out.longest = self.left_out.longest.max(Duration::from_nanos(longest.nanos));
        self.left_out.short += short;
        self.items.drain(..short);
    }

    fn add_spans(&mut self, names: &mut Names, depths: &[u32]) {
        let callsites: Vec<_> =
            self.trace.callsites().iter().map(|callsite| names.index(callsite.name()) as u32).collect();
        for span in self.trace.spans() {
            if span.end() < self.step.start() || span.start() > self.step.end() {
                continue;
            }
            let (row, level) = (span.track_id().index() as u32, depths[span.id().index()]);
            let name = callsites[span.callsite_id().index()];
            let item = Item { row, level, name, ..Item::new(Key::Span(span.id().index() as u32)) };
            self.add(item, span.start(), span.end());
        }
    }

    fn add_calls(&mut self, names: &mut Names, depths: &[u32]) {
        for call in self.trace.api_calls() {
            if call.end() < self.step.start() || call.start() > self.step.end() {
                continue;
            }
            let row = call.track_id();
            let span = call.span().filter(|span| span.track_id() == row);
            let level = span.map_or(0, |span| depths[span.id().index()] + 1);
            let (row, name) = (row.index() as u32, names.index(call.name()) as u32);
            let item = Item { row, level, name, ..Item::new(Key::Call(call.id().index() as u32)) };
            self.add(item, call.start(), call.end());
        }
    }

    fn add_work(&mut self, names: &mut Names) {
        let threads = self.trace.tracks().len();
        let mut known: FxHashMap<WorkKey, u32> = FxHashMap::default();
        for work in self.trace.work() {
            if work.end() < self.step.start() || work.start() > self.step.end() {
                continue;
            }
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.index(&work.name().to_string()) as u32);
            let call = work.call().map(|call| Key::Call(call.id().index() as u32));
            let link = call.or_else(|| Some(Key::Span(work.span()?.id().index() as u32)));
            let row = (threads + work.stream_id().index()) as u32;
            let item = Item { row, name, link, ..Item::new(Key::Work(work.id().index() as u32)) };
            self.add(item, work.start(), work.end());
        }
    }
}

impl Item {
    fn new(key: Key) -> Self {
        Self { key, row: 0, level: 0, start: 0, nanos: 0, name: 0, link: None }
    }
}

impl LeftOut {
    /// Returns the note about these items, if there are any.
    fn note(&self) -> Option<String> {
        let (longest, levels) = (units::time(self.longest), Timeline::LEVELS);
        let short = format!("{} items that took no longer than {longest} are left out", self.short);
        let deep = format!("{} items that are nested more than {levels} deep are left out", self.deep);
        let notes: Vec<_> =
            [(self.short, short), (self.deep, deep)].into_iter().filter(|(items, _)| *items > 0).collect();
        (!notes.is_empty()).then(|| notes.into_iter().map(|(_, note)| note).collect::<Vec<_>>().join("; "))
    }
}

/// Returns for each span the number of spans around it on its row. A parent comes before its children.
fn depths(trace: &Trace) -> Vec<u32> {
    let mut depths: Vec<u32> = Vec::with_capacity(trace.spans().len());
    for span in trace.spans() {
        let outer = span.stack().skip(1).find(|outer| outer.track_id() == span.track_id());
        depths.push(outer.map_or(0, |outer| depths[outer.id().index()] + 1));
    }
    depths
}

/// Returns the rows that have items, threads first, and gives the items their numbers.
fn rows(trace: &Trace, items: &mut [Item]) -> Vec<Row> {
    let threads = trace.tracks().iter().map(crate::trace::Track::label);
    let streams = trace.streams().iter().map(|stream| format!("GPU {}, {}", stream.device(), stream.label()));
    let mut rows: Vec<_> = threads.chain(streams).map(|label| Row { label, levels: 0 }).collect();
    for item in &*items {
        let row = &mut rows[item.row as usize];
        row.levels = row.levels.max(item.level + 1);
    }
    let mut shown = 0;
    let number = |row: &Row| {
        shown += u32::from(row.levels > 0);
        shown.saturating_sub(1)
    };
    let numbers: Vec<u32> = rows.iter().map(number).collect();
    items.iter_mut().for_each(|item| item.row = numbers[item.row as usize]);
    rows.retain(|row| row.levels > 0);
    rows
}
