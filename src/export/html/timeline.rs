//! One step as it ran, item by item.

use super::names::Names;
use crate::{
    export::{json::Object, work_key::WorkKey},
    trace::{Span, Step, Timestamp, Trace},
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
    /// The number of items that are left out, and the time that all of them are shorter than.
    left_out: Option<(usize, Duration)>,
}

/// A thread or a stream.
#[derive(Debug)]
struct Row {
    label: String,
    /// The number of lines that nested items take.
    levels: usize,
}

/// A span, an API call, or a piece of GPU work.
#[derive(Clone, Copy, Debug)]
struct Item {
    key: Key,
    row: usize,
    level: usize,
    /// From the start of the step.
    start: Duration,
    duration: Duration,
    name: usize,
    /// The call, or else the span, that launched it.
    link: Option<Key>,
}

/// The identity of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Span(usize),
    Call(usize),
    Work(usize),
}

impl Timeline {
    /// The most items of a step. Past that, the shortest are left out.
    const ITEMS: usize = 20_000;

    /// Returns the timeline of a step.
    pub(super) fn of(trace: &Trace, step: &Step, names: &mut Names) -> Self {
        let mut items = Items { trace, step, items: Vec::new() };
        items.add_spans(names);
        items.add_calls(names);
        items.add_work(names);
        let mut items = items.items;
        let left_out = shorten(&mut items);
        items.sort_by_key(|item| (item.start, std::cmp::Reverse(item.duration), item.row, item.level));
        let rows = rows(trace, &mut items);
        let (number, duration) = (step.number(), step.duration());
        Self { step: number, duration, window: trace.window(), rows, items, left_out }
    }

    pub(super) fn write(&self, object: &mut Object<'_>) {
        object.string("label", &format!("step {} of window {}", self.step, self.window));
        object.number("number", self.step);
        object.number("duration", self.duration.as_nanos());
        if let Some((items, time)) = &self.left_out {
            let time = crate::report::units::time(*time);
            object.string("note", &format!("{items} items that took no longer than {time} are left out"));
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
        let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let mut before = 0;
        column("start", &mut |item| nanos(item.start) - std::mem::replace(&mut before, nanos(item.start)));
        column("length", &mut |item| nanos(item.duration));
        column("row", &mut |item| item.row as i64);
        column("level", &mut |item| item.level as i64);
        column("name", &mut |item| item.name as i64);
        let link = |item: &Item| item.link.and_then(|key| indices.get(&key)).map_or(-1, |&index| index as i64);
        column("link", &mut |item| link(item));
    }
}

/// The items of a step, while they are found.
struct Items<'a> {
    trace: &'a Trace,
    step: &'a Step,
    items: Vec<Item>,
}

impl Items<'_> {
    /// Adds an item, as far as it is in the step.
    fn add(&mut self, item: Item, start: Timestamp, end: Timestamp) {
        let (from, to) = (start.max(self.step.start()), end.min(self.step.end()));
        if from < to || (from == to && start == end && from < self.step.end()) {
            self.items.push(Item { start: from.since(self.step.start()), duration: to.since(from), ..item });
        }
    }

    fn add_spans(&mut self, names: &mut Names) {
        let callsites: Vec<_> = self.trace.callsites().iter().map(|callsite| names.index(callsite.name())).collect();
        for span in self.trace.spans() {
            if span.end() < self.step.start() || span.start() > self.step.end() {
                continue;
            }
            let (row, level) = (span.track_id().index(), depth(span));
            let name = callsites[span.callsite_id().index()];
            let item = Item { row, level, name, ..Item::new(Key::Span(span.id().index())) };
            self.add(item, span.start(), span.end());
        }
    }

    fn add_calls(&mut self, names: &mut Names) {
        for call in self.trace.api_calls() {
            if call.end() < self.step.start() || call.start() > self.step.end() {
                continue;
            }
            let row = call.track_id();
            let level = call.span().filter(|span| span.track_id() == row).map_or(0, |span| depth(span) + 1);
            let (row, name) = (row.index(), names.index(call.name()));
            let item = Item { row, level, name, ..Item::new(Key::Call(call.id().index())) };
            self.add(item, call.start(), call.end());
        }
    }

    fn add_work(&mut self, names: &mut Names) {
        let threads = self.trace.tracks().len();
        let mut known: FxHashMap<WorkKey, usize> = FxHashMap::default();
        for work in self.trace.work() {
            if work.end() < self.step.start() || work.start() > self.step.end() {
                continue;
            }
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.index(&work.name().to_string()));
            let call = work.call().map(|call| Key::Call(call.id().index()));
            let link = call.or_else(|| Some(Key::Span(work.span()?.id().index())));
            let row = threads + work.stream_id().index();
            let item = Item { row, name, link, ..Item::new(Key::Work(work.id().index())) };
            self.add(item, work.start(), work.end());
        }
    }
}

impl Item {
    fn new(key: Key) -> Self {
        Self { key, row: 0, level: 0, start: Duration::ZERO, duration: Duration::ZERO, name: 0, link: None }
    }
}

/// Returns the number of spans around a span on its row.
fn depth(span: Span<'_>) -> usize {
    span.stack().skip(1).filter(|outer| outer.track_id() == span.track_id()).count()
}

/// Leaves out the shortest items if there are too many. Returns how many, and the time of the longest of them.
fn shorten(items: &mut Vec<Item>) -> Option<(usize, Duration)> {
    let left_out = items.len().checked_sub(Timeline::ITEMS).filter(|&count| count > 0)?;
    let (_, longest, _) = items.select_nth_unstable_by_key(left_out - 1, |item| item.duration);
    let longest = longest.duration;
    items.drain(..left_out);
    Some((left_out, longest))
}

/// Returns the rows that have items, threads first, and gives the items their numbers.
fn rows(trace: &Trace, items: &mut [Item]) -> Vec<Row> {
    let threads = trace.tracks().iter().map(crate::trace::Track::label);
    let streams = trace.streams().iter().map(|stream| format!("GPU {}, {}", stream.device(), stream.label()));
    let mut rows: Vec<_> = threads.chain(streams).map(|label| Row { label, levels: 0 }).collect();
    for item in &*items {
        rows[item.row].levels = rows[item.row].levels.max(item.level + 1);
    }
    let mut shown = 0;
    let number = |row: &Row| {
        shown += usize::from(row.levels > 0);
        shown.saturating_sub(1)
    };
    let numbers: Vec<usize> = rows.iter().map(number).collect();
    items.iter_mut().for_each(|item| item.row = numbers[item.row]);
    rows.retain(|row| row.levels > 0);
    rows
}
