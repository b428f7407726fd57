//! Events of Chrome's trace format, written one after the other.

use super::{
    json::{Json, Members, Object},
    micros::Micros,
    row::{Row, RowText},
    times::Times,
};
use crate::trace::Timestamp;
use std::io::{self, Write};

/// Writes a document: its header, the events, and its name.
///
/// An event says what it is, then where it is, then when it is, and then its arguments:
///
/// ```text
/// events.slice("cuda_sync", "Context Sync").on(row).during(start, end).args(|args| args.number("context", 1))?;
/// ```
pub(super) struct EventWriter<'w> {
    out: &'w mut dyn Write,
    /// Text to be passed on once it is large enough.
    json: Json,
    times: Times,
    /// Whether there is no event yet.
    first: bool,
    /// The time of the event that was written last.
    last: Micros,
}

impl<'w> EventWriter<'w> {
    /// Bytes that are passed on at once.
    const BATCH: usize = 1 << 16;

    pub(super) fn new(out: &'w mut dyn Write, times: Times, header: &Members) -> Self {
        let mut json = Json::default();
        json.raw("{").raw(header.as_bytes()).raw(",\n\"traceEvents\":[\n");
        Self { out, json, times, first: true, last: Micros::of(0) }
    }

    /// Begins an event that takes time.
    pub(super) fn slice(&mut self, category: &'static str, name: &str) -> Event<'_, 'w> {
        self.begin(|json| slice(json, category, name))
    }

    /// Begins an event of one moment.
    pub(super) fn instant(&mut self, scope: Scope, category: &'static str, name: &str) -> Event<'_, 'w> {
        self.begin(|json| instant(json, scope, category, name))
    }

    /// Begins a sample of a counter.
    pub(super) fn counter(&mut self, name: &str) -> Event<'_, 'w> {
        self.begin(|json| {
            json.raw("{\"ph\":\"C\",\"name\":").string(name);
        })
    }

    /// Begins an event of which this much was written before.
    #[inline]
    pub(super) fn event(&mut self, head: &Head) -> Event<'_, 'w> {
        self.begin(|json| {
            json.raw(head.0.as_bytes());
        })
    }

    /// Begins an event that says something about a row.
    pub(super) fn metadata(&mut self, kind: &'static str, row: Row) -> TimedEvent<'_, 'w> {
        let event = self.begin(|json| {
            json.raw("{\"ph\":\"M\",\"name\":").string(kind);
        });
        row.write(&mut event.0.json);
        TimedEvent(event.0)
    }

    /// Begins an arrow at the event that was written last, which is on this row. It ends at the event of the same
    /// number, of which these are the digits.
    pub(super) fn arrow_from(&mut self, number: &str, row: &RowText) -> io::Result<()> {
        self.json.raw(",\n{\"ph\":\"s\",\"id\":").raw(number);
        self.at_last(row).raw(",\"cat\":\"ac2g\",\"name\":\"ac2g\"}");
        self.pass_on()
    }

    /// Ends an arrow at the event that was written last, which is on this row.
    pub(super) fn arrow_to(&mut self, number: &str, row: &RowText) -> io::Result<()> {
        self.json.raw(",\n{\"ph\":\"f\",\"id\":").raw(number);
        // Without the binding point `e` it would end at the next event.
        self.at_last(row).raw(",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"bp\":\"e\"}");
        self.pass_on()
    }

    #[inline]
    fn at_last(&mut self, row: &RowText) -> &mut Json {
        row.write_before_time(&mut self.json);
        self.json.micros(&self.last)
    }

    #[inline]
    fn begin(&mut self, head: impl FnOnce(&mut Json)) -> Event<'_, 'w> {
        if !std::mem::take(&mut self.first) {
            self.json.raw(",\n");
        }
        head(&mut self.json);
        Event(self)
    }

    #[inline]
    fn pass_on(&mut self) -> io::Result<()> {
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

/// An event that says what it is.
#[must_use = "an event ends with its arguments"]
pub(super) struct Event<'a, 'w>(&'a mut EventWriter<'w>);

impl<'a, 'w> Event<'a, 'w> {
    pub(super) fn on(self, row: Row) -> PlacedEvent<'a, 'w> {
        row.write_before_time(&mut self.0.json);
        PlacedEvent(self.0)
    }

    #[inline]
    pub(super) fn on_row(self, row: &RowText) -> PlacedEvent<'a, 'w> {
        row.write_before_time(&mut self.0.json);
        PlacedEvent(self.0)
    }
}

/// An event that says what it is and where.
#[must_use = "an event ends with its arguments"]
pub(super) struct PlacedEvent<'a, 'w>(&'a mut EventWriter<'w>);

impl<'a, 'w> PlacedEvent<'a, 'w> {
    #[inline]
    pub(super) fn at(self, at: Timestamp) -> TimedEvent<'a, 'w> {
        let Self(writer) = self;
        writer.last = writer.times.at(at);
        writer.json.micros(&writer.last);
        TimedEvent(writer)
    }

    #[inline]
    pub(super) fn during(self, start: Timestamp, end: Timestamp) -> TimedEvent<'a, 'w> {
        let TimedEvent(writer) = self.at(start);
        writer.json.raw(",\"dur\":").micros(&writer.times.between(start, end));
        TimedEvent(writer)
    }
}

/// An event that lacks only its arguments.
#[must_use = "an event ends with its arguments"]
pub(super) struct TimedEvent<'a, 'w>(&'a mut EventWriter<'w>);

impl TimedEvent<'_, '_> {
    /// Ends the event with its arguments.
    #[inline]
    pub(super) fn args(self, write: impl FnOnce(&mut Object<'_>)) -> io::Result<()> {
        self.0.json.raw(",\"args\":{").members(write);
        self.0.json.raw("}}");
        self.0.pass_on()
    }
}

/// The rows that the line of an instant reaches over.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scope {
    /// Its own row.
    Thread,
    /// All rows of its process.
    Process,
    /// All rows.
    Global,
}

/// The beginning of an event, up to its name, kept as text because many events have the same one.
#[derive(Clone, Debug)]
pub(super) struct Head(Json);

impl Head {
    /// The beginning of an event that takes time.
    pub(super) fn slice(category: &'static str, name: &str) -> Self {
        let mut json = Json::default();
        slice(&mut json, category, name);
        Self(json)
    }

    /// The beginning of an event of one moment.
    pub(super) fn instant(scope: Scope, category: &'static str, name: &str) -> Self {
        let mut json = Json::default();
        instant(&mut json, scope, category, name);
        Self(json)
    }
}

fn slice(json: &mut Json, category: &'static str, name: &str) {
    json.raw("{\"ph\":\"X\",\"cat\":\"").raw(category).raw("\",\"name\":").string(name);
}

fn instant(json: &mut Json, scope: Scope, category: &'static str, name: &str) {
    let scope = match scope {
        Scope::Thread => "t",
        Scope::Process => "p",
        Scope::Global => "g",
    };
    json.raw("{\"ph\":\"i\",\"s\":\"").raw(scope).raw("\",\"cat\":\"").raw(category).raw("\",\"name\":").string(name);
}
