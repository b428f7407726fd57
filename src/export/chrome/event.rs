//! A writer of events in Chrome's trace format.

use super::{
    flavor::Times,
    rows::{Row, RowText},
};
use crate::{
    export::{
        json::{Json, Members, Object},
        time_text::Micros,
    },
    trace::Timestamp,
};
use std::io::{self, Write};

/// Writes a document: its header, the events, and its name.
///
/// The parts of an event are written in this order: its category and name, its row, its time, its arguments.
///
/// ```text
/// events.slice("cuda_sync", "Context Sync").on(row).during(start, end).args(|args| args.number("context", 1))?;
/// ```
pub(super) struct EventWriter<'w> {
    out: &'w mut dyn Write,
    /// Text that is passed on to `out` once it is large enough.
    json: Json,
    times: Times,
    /// Whether there is no event yet.
    first: bool,
    /// The time of the last event written.
    last: Micros,
}

impl<'w> EventWriter<'w> {
    /// The number of bytes passed on at a time.
    const BATCH: usize = 1 << 16;

    pub(super) fn new(out: &'w mut dyn Write, times: Times, header: &Json) -> Self {
        let mut json = Json::default();
        json.raw("{").raw(header.as_bytes()).raw(",\n\"traceEvents\":[\n");
        Self { out, json, times, first: true, last: Micros::of(0) }
    }

    /// Begins an event that takes time.
    pub(super) fn slice(&mut self, category: &'static str, name: &str) -> Event<'_, 'w> {
        self.begin(|event| write_slice(event, category, name))
    }

    /// Begins an event of one moment.
    pub(super) fn instant(&mut self, scope: Scope, category: &'static str, name: &str) -> Event<'_, 'w> {
        self.begin(|event| write_instant(event, scope, category, name))
    }

    /// Begins a sample of a counter.
    pub(super) fn counter(&mut self, name: &str) -> Event<'_, 'w> {
        self.begin(|event| {
            event.word("ph", "C");
            event.string("name", name);
        })
    }

    /// Begins a sample of a counter of this category.
    pub(super) fn counter_of(&mut self, category: &str, name: &str) -> Event<'_, 'w> {
        self.begin(|event| {
            event.word("ph", "C");
            event.string("cat", category);
            event.string("name", name);
        })
    }

    /// Begins an event with prepared members.
    #[inline]
    pub(super) fn event(&mut self, head: &Head) -> Event<'_, 'w> {
        self.begin(|event| event.members(&head.0))
    }

    /// Begins an instant across all rows that has no category.
    pub(super) fn mark(&mut self, name: &str) -> Event<'_, 'w> {
        self.begin(|event| {
            event.word("ph", "i");
            event.word("s", "g");
            event.string("name", name);
        })
    }

    /// Begins an event that names or sorts a row.
    pub(super) fn metadata(&mut self, kind: &'static str, row: Row) -> TimedEvent<'_, 'w> {
        self.metadata_of(kind, &row.into())
    }

    /// Begins an event that names or sorts a row, which is given as text.
    pub(super) fn metadata_of(&mut self, kind: &'static str, row: &RowText) -> TimedEvent<'_, 'w> {
        let event = self.begin(|event| {
            event.word("ph", "M");
            event.word("name", kind);
            row.write(event);
        });
        TimedEvent(event.0)
    }

    /// Begins an arrow at the last event written, which is on this row. The arrow ends where
    /// [`arrow_to`](Self::arrow_to) is called with the same category and the same id, given as digits.
    pub(super) fn arrow_from(&mut self, category: &'static str, id: &str, row: &RowText) -> io::Result<()> {
        self.arrow("s", category, id, row);
        self.end_event()
    }

    /// Ends an arrow at the last event written, which is on this row.
    pub(super) fn arrow_to(&mut self, category: &'static str, id: &str, row: &RowText) -> io::Result<()> {
        // Without the binding point `e` it would end at the next event.
        self.arrow("f", category, id, row).word("bp", "e");
        self.end_event()
    }

    #[inline]
    fn arrow(&mut self, phase: &'static str, category: &'static str, id: &str, row: &RowText) -> Object<'_> {
        self.separate();
        let mut event = self.json.begin_object();
        event.word("ph", phase);
        event.digits("id", id);
        row.write(&mut event);
        event.micros("ts", &self.last);
        event.word("cat", category);
        event.word("name", category);
        event
    }

    #[inline]
    fn begin(&mut self, head: impl FnOnce(&mut Object<'_>)) -> Event<'_, 'w> {
        self.separate();
        head(&mut self.json.begin_object());
        Event(self)
    }

    #[inline]
    fn separate(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.json.raw(",\n");
        }
    }

    /// Ends an event, and passes on the text if it is large enough.
    #[inline]
    fn end_event(&mut self) -> io::Result<()> {
        self.json.end_object();
        if self.json.len() >= Self::BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.json.as_bytes())?;
        self.json.clear();
        Ok(())
    }

    /// Ends the document, whose name comes last.
    pub(super) fn finish(mut self, name: &str) -> io::Result<()> {
        self.json.raw("\n],\"traceName\":").string(name).raw("}\n");
        self.flush()
    }
}

/// An event that has its category and name, and still needs a row.
#[must_use = "an event ends with its arguments"]
pub(super) struct Event<'a, 'w>(&'a mut EventWriter<'w>);

impl<'a, 'w> Event<'a, 'w> {
    pub(super) fn on(self, row: Row) -> PlacedEvent<'a, 'w> {
        row.write(&mut self.0.json.open_object());
        PlacedEvent(self.0)
    }

    #[inline]
    pub(super) fn on_row(self, row: &RowText) -> PlacedEvent<'a, 'w> {
        row.write(&mut self.0.json.open_object());
        PlacedEvent(self.0)
    }
}

/// An event that has its row, and still needs a time.
#[must_use = "an event ends with its arguments"]
pub(super) struct PlacedEvent<'a, 'w>(&'a mut EventWriter<'w>);

impl<'a, 'w> PlacedEvent<'a, 'w> {
    #[inline(always)]
    pub(super) fn at(self, at: Timestamp) -> TimedEvent<'a, 'w> {
        let Self(writer) = self;
        writer.last = writer.times.at(at);
        writer.json.open_object().micros("ts", &writer.last);
        TimedEvent(writer)
    }

    #[inline(always)]
    pub(super) fn during(self, start: Timestamp, end: Timestamp) -> TimedEvent<'a, 'w> {
        let TimedEvent(writer) = self.at(start);
        writer.json.open_object().micros("dur", &writer.times.between(start, end));
        TimedEvent(writer)
    }
}

/// An event that has its time, and still needs its arguments.
#[must_use = "an event ends with its arguments"]
pub(super) struct TimedEvent<'a, 'w>(&'a mut EventWriter<'w>);

impl TimedEvent<'_, '_> {
    /// Ends the event with its arguments.
    #[inline]
    pub(super) fn args(self, write: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        self.0.json.open_object().object("args", write);
        self.0.end_event()
    }
}

/// The rows across which an instant is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// Its own row.
    Thread,
    /// All rows of its process.
    Process,
    /// All rows.
    Global,
}

/// The first members of an event, up to its name, kept as text because many events share them.
#[derive(Clone, Debug)]
pub(super) struct Head(Members);

impl Head {
    /// The first members of an event that takes time.
    pub(super) fn slice(category: &'static str, name: &str) -> Self {
        Self(Members::new(|event| write_slice(event, category, name)))
    }

    /// The first members of an event of one moment.
    pub(super) fn instant(scope: Scope, category: &'static str, name: &str) -> Self {
        Self(Members::new(|event| write_instant(event, scope, category, name)))
    }
}

fn write_slice(event: &mut Object<'_>, category: &'static str, name: &str) {
    event.word("ph", "X");
    event.word("cat", category);
    event.string("name", name);
}

fn write_instant(event: &mut Object<'_>, scope: Scope, category: &'static str, name: &str) {
    let scope = match scope {
        Scope::Thread => "t",
        Scope::Process => "p",
        Scope::Global => "g",
    };
    event.word("ph", "i");
    event.word("s", scope);
    event.word("cat", category);
    event.string("name", name);
}
