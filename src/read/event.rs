//! Events of Chrome's trace format.

use super::raw::Raw;
use crate::trace::{Attribution, Timestamp};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::{borrow::Cow, fmt};

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

    fn clear(&mut self) {
        let mut args = std::mem::take(&mut self.args);
        args.clear();
        *self = Self { args, ..Self::default() };
    }
}

/// Reads an event.
impl<'de> DeserializeSeed<'de> for &mut Event<'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Event<'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event of a trace")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.clear();
        while let Some(key) = map.next_key_seed(Text)? {
            match &*key {
                "ph" => self.phase = text(map.next_value()?),
                "cat" => self.category = text(map.next_value()?),
                "name" => self.name = text(map.next_value()?),
                "s" => self.scope = text(map.next_value()?),
                "id" => self.id = map.next_value()?,
                "pid" => self.pid = map.next_value()?,
                "tid" => self.tid = map.next_value()?,
                "ts" => self.ts = map.next_value()?,
                "dur" => self.dur = map.next_value()?,
                "args" => map.next_value_seed(Args(&mut self.args))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

fn text(raw: Raw<'_>) -> Cow<'_, str> {
    raw.text().unwrap_or(Cow::Borrowed(raw.0))
}

/// Reads a string, without copying it if it has no escapes.
pub(super) struct Text;

impl<'de> DeserializeSeed<'de> for Text {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Text {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// Reads the arguments of an event. Anything but an object is passed over.
struct Args<'e, 'a>(&'e mut Vec<(Cow<'a, str>, Raw<'a>)>);

impl<'de> DeserializeSeed<'de> for Args<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Args<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the arguments of an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.0.clear();
        while let Some(key) = map.next_key_seed(Text)? {
            self.0.push((key, map.next_value()?));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}
