//! Decodes a tree of settings by serde, so that every error has a position.

use super::{
    node::{Key, Node, Position, Value},
    spelling::suggestion,
};
use serde::{
    Deserializer,
    de::{
        DeserializeOwned, DeserializeSeed, Error, Expected, IntoDeserializer, MapAccess, Unexpected, Visitor,
        value::{SeqDeserializer, StrDeserializer},
    },
    forward_to_deserialize_any,
};
use std::{fmt, slice};

/// A value that cannot be decoded, and where it is.
#[derive(Debug)]
pub(super) struct DecodeError {
    pub(super) position: Option<Position>,
    pub(super) problem: String,
}

/// Decodes a tree.
pub(super) fn decode<T: DeserializeOwned>(node: &Node) -> Result<T, DecodeError> {
    T::deserialize(node)
}

impl DecodeError {
    fn new(problem: String) -> Self {
        Self { position: None, problem }
    }

    fn or_at(mut self, position: Option<Position>) -> Self {
        self.position = self.position.or(position);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for DecodeError {}

impl Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let found = match found {
            Unexpected::Str(text) => format!("{text:?}"),
            Unexpected::Unsigned(number) => number.to_string(),
            Unexpected::Signed(number) => number.to_string(),
            Unexpected::Float(number) => number.to_string(),
            Unexpected::Bool(boolean) => boolean.to_string(),
            Unexpected::Seq => "a list".to_owned(),
            Unexpected::Map => "a section".to_owned(),
            Unexpected::Unit => "nothing".to_owned(),
            other => other.to_string(),
        };
        // The names that serde gives to the types of `Profiling`.
        let expected = match expected.to_string().as_str() {
            "u64" => "a whole number".to_owned(),
            "f64" => "a number".to_owned(),
            "a boolean" => "true or false".to_owned(),
            "a string" | "path string" => "text".to_owned(),
            "struct Profiling" => "a section of settings, such as `active: 3`".to_owned(),
            other => other.to_owned(),
        };
        Self::new(format!("expected {expected}, found {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key `{field}`{}", suggestion(field, expected)))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::new(format!("`{field}` is set twice"))
    }
}

/// Reads the words that YAML 1.1 and variables have for true and false.
fn boolean(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "true" | "on" | "yes" => Some(true),
        "false" | "off" | "no" => Some(false),
        _ => None,
    }
}

impl<'de> Deserializer<'de> for &Node {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let result = match &self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(boolean) => visitor.visit_bool(*boolean),
            Value::Integer(integer) => match u64::try_from(*integer) {
                Ok(integer) => visitor.visit_u64(integer),
                Err(_) => visitor.visit_i64(*integer),
            },
            Value::Float(float) => visitor.visit_f64(*float),
            Value::Text(text) | Value::Untyped(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Value::Map(entries) => {
                let mut at = None;
                let map = Entries { entries: entries.iter(), value: None, at: &mut at };
                visitor.visit_map(map).map_err(|error| error.or_at(at))
            }
        };
        result.map_err(|error| error.or_at(self.position))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Untyped(text) if text == "1" || text == "0" => visitor.visit_bool(text == "1"),
            Value::Text(text) | Value::Untyped(text) => match boolean(text) {
                Some(boolean) => visitor.visit_bool(boolean),
                None => self.deserialize_any(visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Untyped(text) => match text.parse() {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => self.deserialize_any(visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match &self.value {
            Value::Untyped(text) => match text.parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => self.deserialize_any(visitor),
            },
            _ => self.deserialize_any(visitor),
        }
    }

    /// A key without a value, as `repeat:` in YAML, is not set.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if let Value::Null = self.value { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, DecodeError> for &Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// The entries of a map.
struct Entries<'a> {
    entries: slice::Iter<'a, (Key, Node)>,
    /// The key and the value of the entry that was last returned.
    value: Option<(&'a str, &'a Node)>,
    /// The position of that key.
    at: &'a mut Option<Position>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, node)) = self.entries.next() else { return Ok(None) };
        self.value = Some((&key.name, node));
        *self.at = key.position;
        let name: StrDeserializer<'_, DecodeError> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let Some((key, node)) = self.value.take() else { return Err(Error::custom("a key has no value")) };
        seed.deserialize(node).map_err(|error| {
            let error = error.or_at(node.position);
            DecodeError { problem: format!("`{key}`: {}", error.problem), ..error }
        })
    }
}
