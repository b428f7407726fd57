//! Events of Chrome's trace format.

use super::{
    raw::Raw,
    scanner::{Scanner, Wrong},
};
use crate::trace::{Attribution, Timestamp};
use std::borrow::Cow;

/// An event, whose values are parsed when they are asked for. It is used again for the next event.
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

    /// When it began. It counts from the document's base until that is added.
    pub(super) fn start(&self) -> Option<Timestamp> {
        self.ts.moment()
    }

    /// When it began and ended.
    pub(super) fn extent(&self) -> Option<(Timestamp, Timestamp)> {
        let start = self.ts.nanos()?;
        let end = start.checked_add(self.dur.nanos()?)?;
        Some((Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end)))
    }

    /// The way in which its span was found, by what the file says of it.
    pub(super) fn attribution(&self, has_span: bool) -> Attribution {
        let all = [Attribution::Direct, Attribution::HandedOff, Attribution::Before, Attribution::Unattributed];
        let said = self.arg("attribution").text();
        let named = said.and_then(|said| all.into_iter().find(|kind| kind.as_str() == said));
        named.unwrap_or(if has_span { Attribution::Direct } else { Attribution::Unattributed })
    }

    /// Reads an event in place of this one.
    #[inline]
    pub(super) fn read(&mut self, scanner: &mut Scanner<'a>) -> Result<(), Wrong> {
        self.clear();
        scanner.object(|scanner, key| {
            match &*key {
                "ph" => self.phase = scanner.text()?,
                "cat" => self.category = scanner.text()?,
                "name" => self.name = scanner.text()?,
                "s" => self.scope = scanner.text()?,
                "id" => self.id = scanner.value()?,
                "pid" => self.pid = scanner.value()?,
                "tid" => self.tid = scanner.value()?,
                "ts" => self.ts = scanner.value()?,
                "dur" => self.dur = scanner.value()?,
                // Anything but an object is passed over.
                "args" if scanner.peek() == b'{' => {
                    self.args.clear();
                    scanner.object(|scanner, key| {
                        self.args.push((key, scanner.value()?));
                        Ok(())
                    })?;
                }
                _ => drop(scanner.value()?),
            }
            Ok(())
        })
    }

    fn clear(&mut self) {
        let mut args = std::mem::take(&mut self.args);
        args.clear();
        *self = Self { args, ..Self::default() };
    }
}
