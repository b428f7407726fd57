//! Events of Chrome's trace format.

use super::{
    raw::Raw,
    scanner::{Scanner, Wrong},
};
use crate::trace::{Attribution, Timestamp};
use std::borrow::Cow;

/// An event, whose values are parsed on demand. It is reused for the next event.
#[derive(Debug, Default)]
pub(super) struct Event<'a> {
    pub(super) phase: Cow<'a, str>,
    pub(super) category: Cow<'a, str>,
    pub(super) name: Cow<'a, str>,
    pub(super) scope: Cow<'a, str>,
    pub(super) id: Raw<'a>,
    pub(super) pid: Raw<'a>,
    pub(super) tid: Raw<'a>,
    ts: Raw<'a>,
    dur: Raw<'a>,
    pub(super) args: Vec<(Cow<'a, str>, Raw<'a>)>,
}

impl<'a> Event<'a> {
    /// The argument with this name; empty if there is none.
    pub(super) fn arg(&self, name: &str) -> Raw<'a> {
        self.args.iter().find(|(key, _)| key == name).map_or(Raw(""), |(_, value)| *value)
    }

    /// When it began, relative to the document's base until that is added.
    pub(super) fn start(&self) -> Option<Timestamp> {
        self.ts.moment()
    }

    /// When it began and ended.
    pub(super) fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        let start = self.ts.nanos()?;
        let end = start.checked_add(self.dur.nanos()?)?;
        Some((Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end)))
    }

    /// How its span was found, according to the file.
    pub(super) fn attribution(&self, has_span: bool) -> Attribution {
        let all = [Attribution::Direct, Attribution::HandedOff, Attribution::Before, Attribution::Unattributed];
        let said = self.arg("attribution").text();
        let named = said.and_then(|said| all.into_iter().find(|kind| kind.as_str() == said));
        named.unwrap_or(if has_span { Attribution::Direct } else { Attribution::Unattributed })
    }

    /// Reads an event, replacing this one. Adds its values, if they and the text between them are the whole event.
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>, values: &mut Vec<ScannedValue>) -> Result<(), Wrong> {
        self.clear();
        scanner.peek();
        let start = scanner.position();
        let (mut has_args, mut is_regular) = (false, true);
        scanner.object(|scanner, key| {
            let member = Member::of(&key);
            is_regular &= matches!(key, Cow::Borrowed(_));
            if member == Member::Args && scanner.peek() == b'{' {
                // Of several, the last counts.
                self.args.clear();
                is_regular &= !std::mem::replace(&mut has_args, true);
                return scanner.object(|scanner, key| {
                    scanner.peek();
                    let (from, length) = (scanner.position() - start, key.len());
                    is_regular &= matches!(key, Cow::Borrowed(_));
                    self.args.push((key, scanner.value()?));
                    let end = scanner.position() - start;
                    values.push(ScannedValue { member: Member::Argument, key: length, start: from, end });
                    Ok(())
                });
            }
            is_regular &= member != Member::Args;
            scanner.peek();
            let from = scanner.position() - start;
            self.set(member, "", scanner)?;
            values.push(ScannedValue { member, key: key.len(), start: from, end: scanner.position() - start });
            Ok(())
        })?;
        if !is_regular {
            values.clear();
        }
        Ok(())
    }

    /// Reads the value of a member, replacing the previous one.
    #[inline]
    pub(super) fn set(&mut self, member: Member, key: &'a str, scanner: &mut Scanner<'a>) -> Result<(), Wrong> {
        if matches!(member, Member::Phase | Member::Category | Member::Name | Member::Scope) {
            let text = scanner.text()?;
            match member {
                Member::Phase => self.phase = text,
                Member::Category => self.category = text,
                Member::Name => self.name = text,
                _ => self.scope = text,
            }
            return Ok(());
        }
        let value = scanner.value()?;
        match member {
            Member::Id => self.id = value,
            Member::Pid => self.pid = value,
            Member::Tid => self.tid = value,
            Member::Ts => self.ts = value,
            Member::Dur => self.dur = value,
            Member::Argument => self.args.push((Cow::Borrowed(key), value)),
            // Arguments that are not an object are skipped.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn clear(&mut self) {
        let mut args = std::mem::take(&mut self.args);
        args.clear();
        *self = Self { args, ..Self::default() };
    }
}

/// A value of an event that was scanned.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScannedValue {
    pub(super) member: Member,
    /// The length of its key.
    pub(super) key: usize,
    /// Where it begins and ends in the text of the event.
    pub(super) start: usize,
    pub(super) end: usize,
}

/// A part of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    Phase,
    Category,
    Name,
    Scope,
    Id,
    Pid,
    Tid,
    Ts,
    Dur,
    Args,
    /// A member of the arguments.
    Argument,
    Other,
}

impl Member {
    fn of(key: &str) -> Self {
        match key {
            "ph" => Self::Phase,
            "cat" => Self::Category,
            "name" => Self::Name,
            "s" => Self::Scope,
            "id" => Self::Id,
            "pid" => Self::Pid,
            "tid" => Self::Tid,
            "ts" => Self::Ts,
            "dur" => Self::Dur,
            "args" => Self::Args,
            _ => Self::Other,
        }
    }
}
