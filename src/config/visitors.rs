//! How serde reads and writes the types of settings.

use super::values::{Activities, Export, StepRange, activity_name, bytes};
use crate::{
    activity::Activity, cpu_time::CpuTime, flight::FlightLength, request::StepCondition, units::parse_duration,
};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, SeqAccess, Unexpected, Visitor},
};
use std::{fmt, marker::PhantomData, str::FromStr, time::Duration};

/// A visitor of text that is parsed.
struct Parsed<T> {
    expected: &'static str,
    parse: fn(&str) -> Result<T, String>,
}

impl<'de, T> Visitor<'de> for Parsed<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        // Only bytes and steps can be plain numbers.
        let wrong = |_| E::invalid_type(Unexpected::Unsigned(number), &self.expected);
        (self.parse)(&number.to_string()).map_err(wrong)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    /// `perfetto: runs/mnist`, which YAML reads as a map.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
        let entry: Option<(String, String)> = map.next_entry()?;
        let (name, dir) = entry.ok_or_else(|| A::Error::invalid_type(Unexpected::Map, &self.expected))?;
        let parsed = self.visit_str(&format!("{name}:{dir}"))?;
        match map.next_key::<String>()? {
            None => Ok(parsed),
            Some(more) => Err(A::Error::custom(format!("`{more}` belongs to an item of its own"))),
        }
    }
}

/// Reads a type from text, and writes it as text.
macro_rules! parsed {
    ($($type:ty: $expected:literal,)*) => {
        $(
            impl<'de> Deserialize<'de> for $type {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_any(Parsed { expected: $expected, parse: Self::from_str })
                }
            }

            impl Serialize for $type {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.collect_str(self)
                }
            }
        )*
    };
}

parsed! {
    CpuTime: "\"steps\" or \"spans\"",
    Export: "a format, such as \"chrome\"",
    FlightLength: "a number of steps, or a time such as \"10s\"",
    StepCondition: "a condition, such as \"step_time > 2*median\"",
    StepRange: "a range of steps, such as \"100..110\"",
}

impl<'de> Deserialize<'de> for Activities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Parsed { expected: "an activity, such as \"cuda\"", parse: Self::from_str })
    }
}

/// A list, or text with commas.
struct ListOf<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Visitor<'de> for ListOf<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let items = items.map(str::parse).collect::<Result<Vec<T>, _>>().map_err(E::custom)?;
        self.not_empty(items)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        self.not_empty(items)
    }
}

impl<T> ListOf<T> {
    fn not_empty<E: Error>(self, items: Vec<T>) -> Result<Vec<T>, E> {
        let empty = || E::custom(format!("the list of {} is empty: leave it out for the default", self.0));
        if items.is_empty() { Err(empty()) } else { Ok(items) }
    }
}

/// Bytes, as a number or with a unit.
struct Bytes(u64);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &str| bytes(text).map(Self);
        deserializer.deserialize_any(Parsed { expected: "a number of bytes, such as \"512 MiB\"", parse })
    }
}

struct Exports(Vec<Export>);

impl<'de> Deserialize<'de> for Exports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOf("formats", PhantomData)).map(Self)
    }
}

struct ActivityNames(Vec<Activities>);

impl<'de> Deserialize<'de> for ActivityNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOf("activities", PhantomData)).map(Self)
    }
}

pub(super) fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(Option::<Bytes>::deserialize(deserializer)?.map(|bytes| bytes.0))
}

/// A time such as `1s`.
struct Interval(Duration);

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a time, such as \"1s\" or \"100ms\"";
        let parse =
            |text: &str| parse_duration(text).map(Self).ok_or_else(|| format!("expected {EXPECTED}, found {text:?}"));
        deserializer.deserialize_any(Parsed { expected: EXPECTED, parse })
    }
}

pub(super) fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<Interval>::deserialize(deserializer)?.map(|interval| interval.0))
}

pub(super) fn write_duration<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| format!("{time:?}")).serialize(serializer)
}

struct Texts(Vec<String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListOf("texts", PhantomData)).map(Self)
    }
}

pub(super) fn read_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    Ok(Option::<Texts>::deserialize(deserializer)?.map(|texts| texts.0))
}

pub(super) fn read_exports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Export>>, D::Error> {
    Ok(Option::<Exports>::deserialize(deserializer)?.map(|exports| exports.0))
}

pub(super) fn read_activities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Activity>>, D::Error> {
    let names = Option::<ActivityNames>::deserialize(deserializer)?;
    let mut activities: Option<Vec<_>> = names.map(|names| names.0.iter().flat_map(|name| name.0).copied().collect());
    activities.iter_mut().for_each(|activities: &mut Vec<Activity>| {
        activities.sort();
        activities.dedup();
    });
    Ok(activities)
}

pub(super) fn write_activities<S: Serializer>(
    activities: &Option<Vec<Activity>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(activities.iter().flatten().map(|activity| activity_name(*activity)))
}
