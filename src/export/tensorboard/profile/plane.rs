//! Planes, lines, events and stats in protobuf's wire format.
//!
//! A window has millions of events, so they are encoded field by field, without structs. The field numbers are those in
//! `proto.rs`, which tests decode them with.

use super::stat::Stat;
use crate::{
    export::wire::{self, OpenMessage},
    trace::{Timestamp, Trace},
};
use rustc_hash::FxHashMap;
use std::io::{self, Seek, Write};

/// A plane: lines of events, and the names they refer to.
#[derive(Debug)]
pub(super) struct Plane {
    id: u64,
    name: String,
    /// The moment from which times are counted.
    base: Timestamp,
    /// The head of each line, and its events, in chunks that are not copied.
    lines: Vec<Vec<u8>>,
    stats: Vec<u8>,
    event_names: EventNames,
    texts: Texts,
    /// The known stats that are used. Others get no name: XProf looks at the names to determine what a plane is about.
    used: StatSet,
}

/// A set of known stats.
#[derive(Clone, Copy, Debug, Default)]
struct StatSet(u64);

/// The known stats that a line uses.
#[derive(Clone, Copy, Debug)]
#[must_use = "the plane has to name them"]
pub(super) struct UsedStats(StatSet);

const _: () = assert!(Stat::NAMES.len() <= u64::BITS as usize, "each stat has a bit");

impl StatSet {
    fn add(&mut self, stat: Stat) {
        self.0 |= 1 << stat as u32;
    }

    fn contains(self, stat: u64) -> bool {
        self.0 >> stat & 1 == 1
    }
}

/// The names of events, numbered from 1. A name may have another one that is displayed instead.
#[derive(Debug, Default)]
struct EventNames {
    ids: FxHashMap<(Box<str>, Option<Box<str>>), u64>,
    names: Vec<u8>,
}

impl EventNames {
    /// The size in bytes from which new texts are not stored as names: enough for ten thousand of a hundred characters.
    const BYTES: usize = 1 << 20;
}

/// The names of stats that XProf does not know, and the texts that stats refer to, numbered after the known stats.
#[derive(Debug, Default)]
struct Texts {
    ids: FxHashMap<Box<str>, u64>,
    names: Vec<u8>,
}

/// The number of an event's name in its plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventNameId(u64);

/// The number of a text in its plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TextId(u64);

/// The value of a stat. XProf expects some numbers to be signed and others not.
#[derive(Clone, Copy, Debug)]
pub(super) enum StatValue<'a> {
    F64(f64),
    U64(u64),
    I64(i64),
    Str(&'a str),
    Text(TextId),
}

impl Plane {
    pub(super) fn new(trace: &Trace, id: u64, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            base: trace.start(),
            lines: Vec::new(),
            stats: Vec::new(),
            event_names: EventNames::default(),
            texts: Texts::default(),
            used: StatSet::default(),
        }
    }

    pub(super) fn event_name(&mut self, name: &str) -> EventNameId {
        self.event_names.id(name, None)
    }

    /// Returns the number of a name that XProf uses, together with one that it displays instead.
    pub(super) fn event_name_shown_as(&mut self, name: &str, shown: &str) -> EventNameId {
        self.event_names.id(name, Some(shown).filter(|shown| *shown != name))
    }

    /// Returns whether names take so much memory that texts, which may differ for each event, are not stored as names.
    pub(super) fn has_many_names(&self) -> bool {
        self.event_names.names.len() >= EventNames::BYTES
    }

    pub(super) fn text(&mut self, text: &str) -> TextId {
        self.texts.id(text)
    }

    /// Creates an empty line, to be [added](Self::add_line) once it has its events.
    pub(super) fn line(&self) -> Line {
        Line { base: self.base, events: Vec::new(), used: StatSet::default(), open: Vec::new() }
    }

    /// Adds a line, unless it has no events. Its number decides where it is shown.
    pub(super) fn add_line(&mut self, id: u64, name: &str, line: Line) {
        let length: usize = line.events.iter().map(Vec::len).sum();
        if length == 0 {
            return;
        }
        let mut about = Vec::new();
        wire::number(&mut about, 1, id);
        wire::bytes(&mut about, 2, name.as_bytes());
        let mut head = Vec::new();
        wire::message_head(&mut head, 3, about.len() + length);
        head.append(&mut about);
        self.lines.push(head);
        self.lines.extend(line.events);
        self.used.0 |= line.used.0;
    }

    /// Writes a line as its events are produced: a thread may have millions, with long texts. `add` adds an event, or
    /// returns `false` if there are no more.
    pub(super) fn write_line<W: Write + Seek>(
        out: &mut W,
        (id, name): (u64, &str),
        mut line: Line,
        mut add: impl FnMut(&mut Line) -> bool,
    ) -> io::Result<UsedStats> {
        let message = OpenMessage::begin(out, 3)?;
        let mut head = Vec::new();
        wire::number(&mut head, 1, id);
        wire::bytes(&mut head, 2, name.as_bytes());
        out.write_all(&head)?;
        while add(&mut line) {
            if line.events.len() > 1 {
                line.events.drain(..).try_for_each(|piece| out.write_all(&piece))?;
            }
        }
        line.events.drain(..).try_for_each(|piece| out.write_all(&piece))?;
        message.close(out)?;
        Ok(UsedStats(line.used))
    }

    /// Adds the stats used by a line that has already been written.
    pub(super) fn use_stats(&mut self, UsedStats(used): UsedStats) {
        self.used.0 |= used.0;
    }

    /// Adds a stat of the whole plane.
    pub(super) fn add_stat(&mut self, stat: Stat, value: StatValue<'_>) {
        wire::message(&mut self.stats, 6, |out| encode(out, stat.id(), value));
        self.used.add(stat);
    }

    /// Writes the plane as a field of its space.
    pub(super) fn write(self, out: &mut dyn Write) -> io::Result<()> {
        wire::message_of_parts(out, 1, &self.parts(&self.head()))
    }

    /// Writes the rest of a plane that is already a message.
    pub(super) fn write_rest(self, out: &mut dyn Write) -> io::Result<()> {
        self.parts(&self.head()).iter().try_for_each(|part| out.write_all(part))
    }

    fn head(&self) -> Vec<u8> {
        let mut head = Vec::new();
        wire::number(&mut head, 1, self.id);
        wire::bytes(&mut head, 2, self.name.as_bytes());
        for (index, name) in Stat::NAMES.iter().enumerate().filter(|(index, _)| self.used.contains(*index as u64)) {
            stat_name(&mut head, index as u64 + 1, name);
        }
        head
    }

    fn parts<'a>(&'a self, head: &'a [u8]) -> Vec<&'a [u8]> {
        let rest = [&self.event_names.names, &self.texts.names, &self.stats];
        let parts = self.lines.iter().chain(rest).map(Vec::as_slice);
        [head].into_iter().chain(parts).collect()
    }
}

impl EventNames {
    fn id(&mut self, name: &str, shown: Option<&str>) -> EventNameId {
        let next = self.ids.len() as u64 + 1;
        let id = *self.ids.entry((name.into(), shown.map(Into::into))).or_insert(next);
        if id == next {
            wire::message(&mut self.names, 4, |out| {
                wire::number(out, 1, id);
                wire::message(out, 2, |out| {
                    wire::number(out, 1, id);
                    wire::bytes(out, 2, name.as_bytes());
                    if let Some(shown) = shown {
                        wire::bytes(out, 4, shown.as_bytes());
                    }
                });
            });
        }
        EventNameId(id)
    }
}

impl Texts {
    fn id(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return TextId(id);
        }
        let id = (Stat::NAMES.len() + self.ids.len()) as u64 + 1;
        self.ids.insert(text.into(), id);
        stat_name(&mut self.names, id, text);
        TextId(id)
    }
}

fn stat_name(out: &mut Vec<u8>, id: u64, name: &str) {
    wire::message(out, 5, |out| {
        wire::number(out, 1, id);
        wire::message(out, 2, |out| {
            wire::number(out, 1, id);
            wire::bytes(out, 2, name.as_bytes());
        });
    });
}

/// The events of a line, in the order of their starts, and the outer before the inner.
#[derive(Debug)]
pub(super) struct Line {
    base: Timestamp,
    /// The events, in chunks. A single chunk would be so large that the allocator asks the system for it, instead of
    /// reusing memory that the window's records have taken.
    events: Vec<Vec<u8>>,
    used: StatSet,
    /// The ends of the last span and of the spans around it in picoseconds, outermost first.
    open: Vec<u64>,
}

impl Line {
    /// The size in bytes at which a chunk is full.
    const PIECE: usize = 32 << 10;

    pub(super) fn event(
        &mut self,
        name: EventNameId,
        start: Timestamp,
        end: Timestamp,
        stats: impl FnOnce(&mut Stats<'_>),
    ) {
        let picoseconds = |from: Timestamp, to: Timestamp| (to.since(from).as_nanos() as u64).saturating_mul(1000);
        self.push(name, picoseconds(self.base, start), picoseconds(start, end), stats);
    }

    /// Adds a span, which is nested in the earlier ones that have not ended. XProf loses a span that ends together with
    /// the one around it, so it ends a picosecond earlier.
    pub(super) fn nested(
        &mut self,
        name: EventNameId,
        start: Timestamp,
        end: Timestamp,
        stats: impl FnOnce(&mut Stats<'_>),
    ) {
        let picoseconds = |at: Timestamp| (at.since(self.base).as_nanos() as u64).saturating_mul(1000);
        let (start, mut end) = (picoseconds(start), picoseconds(end));
        while self.open.last().is_some_and(|&around| around <= start) {
            self.open.pop();
        }
        if let Some(&around) = self.open.last() {
            end = end.min(around - 1).max(start);
        }
        self.open.push(end);
        self.push(name, start, end - start, stats);
    }

    fn push(&mut self, name: EventNameId, offset: u64, duration: u64, stats: impl FnOnce(&mut Stats<'_>)) {
        if self.events.last().is_none_or(|piece| piece.len() >= Self::PIECE) {
            self.events.push(Vec::new());
        }
        let Some(events) = self.events.last_mut() else { return };
        wire::message(events, 4, |out| {
            wire::number(out, 1, name.0);
            wire::number(out, 2, offset);
            if duration > 0 {
                wire::number(out, 3, duration);
            }
            stats(&mut Stats { out, used: &mut self.used });
        });
    }
}

/// The stats of an event.
pub(super) struct Stats<'a> {
    out: &'a mut Vec<u8>,
    used: &'a mut StatSet,
}

impl Stats<'_> {
    pub(super) fn add(&mut self, stat: Stat, value: StatValue<'_>) {
        self.used.add(stat);
        self.add_named(TextId(stat.id()), value);
    }

    /// Adds a stat that XProf does not know.
    pub(super) fn add_named(&mut self, name: TextId, value: StatValue<'_>) {
        wire::message(self.out, 4, |out| encode(out, name.0, value));
    }
}

fn encode(out: &mut Vec<u8>, stat: u64, value: StatValue<'_>) {
    wire::number(out, 1, stat);
    match value {
        StatValue::F64(value) => wire::fixed64(out, 2, value.to_le_bytes()),
        StatValue::U64(value) => wire::number(out, 3, value),
        StatValue::I64(value) => wire::number(out, 4, value.cast_unsigned()),
        StatValue::Str(text) => wire::bytes(out, 5, text.as_bytes()),
        StatValue::Text(TextId(id)) => wire::number(out, 7, id),
    }
}

/// Writes the plane with the program. The number of the event's name is that of the program.
pub(super) fn write_metadata(out: &mut dyn Write, program: u64, name: &str, hlo: &[u8]) -> io::Result<()> {
    let mut plane = Vec::new();
    wire::bytes(&mut plane, 2, b"/host:metadata");
    let mut stat = Vec::new();
    wire::number(&mut stat, 1, 1);
    wire::bytes(&mut stat, 6, hlo);
    let mut metadata = Vec::new();
    wire::number(&mut metadata, 1, program);
    wire::bytes(&mut metadata, 2, name.as_bytes());
    wire::bytes(&mut metadata, 5, &stat);
    wire::message(&mut plane, 4, |out| {
        wire::number(out, 1, program);
        wire::bytes(out, 2, &metadata);
    });
    stat_name(&mut plane, 1, "Hlo Proto");
    wire::message_of_parts(out, 1, &[&plane])
}
