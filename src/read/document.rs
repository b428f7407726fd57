//! The JSON document: members of its header, and its events, which are passed on one by one.

use super::{
    event::{Event, Text},
    intake::Intake,
};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Reads a document, and gives its members and events to an [`Intake`].
pub(super) struct Document<'i, 'a>(pub(super) &'i mut Intake<'a>);

impl<'de> DeserializeSeed<'de> for Document<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a trace: an object with `traceEvents`, or a list of events")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut has_events = false;
        while let Some(key) = map.next_key_seed(Text)? {
            if key == "traceEvents" {
                map.next_value_seed(Events(self.0))?;
                has_events = true;
            } else {
                self.0.add_member(key, map.next_value()?);
            }
        }
        match has_events {
            true => Ok(()),
            false => Err(serde::de::Error::missing_field("traceEvents")),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<(), A::Error> {
        Events(self.0).visit_seq(list)
    }
}

/// Reads a list of events.
struct Events<'i, 'a>(&'i mut Intake<'a>);

impl<'de> DeserializeSeed<'de> for Events<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut event = Event::default();
        while list.next_element_seed(&mut event)?.is_some() {
            self.0.add_event(&event);
        }
        Ok(())
    }
}
