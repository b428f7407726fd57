//! A writer of JSON text. It appends to a buffer, since a trace is a million small objects with known keys.

use super::time_text::Micros;
use crate::trace::Value;
use std::io::Write;

/// A buffer of JSON text.
#[derive(Clone, Debug, Default)]
pub(super) struct Json(Vec<u8>);

impl Json {
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Appends text that is already JSON.
    #[inline]
    pub(super) fn raw(&mut self, json: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(json.as_ref());
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.0.push(b'"');
        let bytes = text.as_bytes();
        let mut written = 0;
        for (index, &byte) in bytes.iter().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.0.extend_from_slice(&bytes[written..index]);
            written = index + 1;
            match byte {
                b'"' => self.raw(br#"\""#),
                b'\\' => self.raw(br"\\"),
                b'\n' => self.raw(br"\n"),
                b'\t' => self.raw(br"\t"),
                _ => self.raw(format!("\\u{byte:04x}")),
            };
        }
        self.0.extend_from_slice(&bytes[written..]);
        self.0.push(b'"');
        self
    }

    #[inline]
    fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }

    /// Appends a number, or a string if it is not finite, which JSON numbers cannot be.
    fn float(&mut self, number: f64) -> &mut Self {
        if !number.is_finite() {
            return self.string(&number.to_string());
        }
        // `Debug` is the shortest text that reads back as the same number. Writing to a `Vec` does not fail.
        let _ = write!(self.0, "{number:?}");
        self
    }

    fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => self.raw(if *value { "true" } else { "false" }),
            Value::I64(value) => self.number(*value),
            Value::U64(value) => self.number(*value),
            Value::F64(value) => self.float(*value),
            Value::Str(value) => self.string(value),
        }
    }

    /// Returns the members of an object, one per line, without braces.
    pub(super) fn of_lines(write: impl FnOnce(&mut Object<'_>)) -> Self {
        let mut json = Self::default();
        write(&mut Object { json: &mut json, first: true, lines: true });
        json
    }

    /// Appends an object.
    #[inline]
    pub(super) fn object(&mut self, write: impl FnOnce(&mut Object<'_>)) -> &mut Self {
        write(&mut self.begin_object());
        self.end_object();
        self
    }

    /// Begins an object, to be ended with [`end_object`](Self::end_object).
    #[inline]
    pub(super) fn begin_object(&mut self) -> Object<'_> {
        self.0.push(b'{');
        Object { json: self, first: true, lines: false }
    }

    /// Returns the object that was begun, for adding further members.
    #[inline]
    pub(super) fn open_object(&mut self) -> Object<'_> {
        Object { json: self, first: false, lines: false }
    }

    #[inline]
    pub(super) fn end_object(&mut self) {
        self.0.push(b'}');
    }

    fn array(&mut self, lines: bool, write: impl FnOnce(&mut Array<'_>)) -> &mut Self {
        self.raw("[");
        write(&mut Array { json: self, first: true, lines });
        self.raw("]")
    }

    #[inline(always)]
    fn separate(&mut self, first: &mut bool, lines: bool) {
        if !std::mem::take(first) {
            self.0.push(b',');
            if lines {
                self.0.push(b'\n');
            }
        }
    }
}

/// The maximum length in bytes of a key that is copied at once.
const LONGEST_KEY: usize = 40;

/// The members of an object that is being written.
///
/// Keys are the exporter's own and need no escaping, except those of [`entry`](Self::entry).
#[derive(Debug)]
pub(super) struct Object<'a> {
    json: &'a mut Json,
    /// Whether there is no member yet.
    first: bool,
    /// Whether each member is on its own line.
    lines: bool,
}

impl Object<'_> {
    #[inline(always)]
    fn key(&mut self, key: &'static str) -> &mut Json {
        if self.lines || key.len() > LONGEST_KEY {
            self.json.separate(&mut self.first, self.lines);
            return self.json.raw("\"").raw(key).raw("\":");
        }
        // The compiler knows the length of the key, and copies `,"KEY":` at once.
        let mut text = [b'"'; LONGEST_KEY + 4];
        let end = key.len() + 4;
        text[0] = b',';
        text[2..end - 2].copy_from_slice(key.as_bytes());
        text[end - 1] = b':';
        match std::mem::take(&mut self.first) {
            true => self.json.raw(&text[1..end]),
            false => self.json.raw(&text[..end]),
        }
    }

    #[inline(always)]
    pub(super) fn number(&mut self, key: &'static str, number: impl itoa::Integer) {
        self.key(key).number(number);
    }

    /// Adds a number with a space before it.
    pub(super) fn spaced_number(&mut self, key: &'static str, number: impl itoa::Integer) {
        self.key(key).raw(" ").number(number);
    }

    /// Adds a number, or a string if it is not finite.
    pub(super) fn float(&mut self, key: &'static str, number: f64) {
        self.key(key).float(number);
    }

    #[inline]
    pub(super) fn micros(&mut self, key: &'static str, micros: &Micros) {
        micros.append_to(&mut self.key(key).0);
    }

    /// Adds a string that needs no escaping.
    #[inline]
    pub(super) fn word(&mut self, key: &'static str, word: &'static str) {
        self.key(key).raw("\"").raw(word).raw("\"");
    }

    /// Adds a number given as digits.
    #[inline]
    pub(super) fn digits(&mut self, key: &'static str, digits: &str) {
        self.key(key).raw(digits);
    }

    #[inline]
    pub(super) fn string(&mut self, key: &'static str, text: &str) {
        self.key(key).string(text);
    }

    pub(super) fn bool(&mut self, key: &'static str, value: bool) {
        self.key(key).value(&Value::Bool(value));
    }

    pub(super) fn null(&mut self, key: &'static str) {
        self.key(key).raw("null");
    }

    /// Adds a string that is already quoted.
    pub(super) fn quoted(&mut self, key: &'static str, text: &Quoted) {
        self.key(key).raw(text.0.as_bytes());
    }

    /// Adds a member whose key may be any text.
    pub(super) fn entry(&mut self, key: &str, value: &Value) {
        self.json.separate(&mut self.first, self.lines);
        self.json.string(key).raw(":").value(value);
    }

    /// Adds a member whose key may be any text, and whose value is already JSON.
    pub(super) fn raw_entry(&mut self, key: &str, json: &str) {
        self.json.separate(&mut self.first, self.lines);
        self.json.string(key).raw(":").raw(json);
    }

    #[inline]
    pub(super) fn object(&mut self, key: &'static str, write: impl FnOnce(&mut Object<'_>)) {
        self.key(key).object(write);
    }

    /// Adds an object whose key may be any text.
    pub(super) fn object_entry(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) {
        self.json.separate(&mut self.first, self.lines);
        self.json.string(key).raw(":").object(write);
    }

    pub(super) fn array(&mut self, key: &'static str, write: impl FnOnce(&mut Array<'_>)) {
        self.key(key).array(false, write);
    }

    /// Adds an array with each element on its own line.
    pub(super) fn array_of_lines(&mut self, key: &'static str, write: impl FnOnce(&mut Array<'_>)) {
        self.key(key).array(true, write);
    }

    /// Adds prepared members.
    #[inline(always)]
    pub(super) fn members(&mut self, members: &Members) {
        match members.0.as_bytes() {
            [_, text @ ..] if self.first => {
                self.first = false;
                self.json.raw(text);
            }
            text => _ = self.json.raw(text),
        }
    }
}

/// The elements of an array that is being written.
#[derive(Debug)]
pub(super) struct Array<'a> {
    json: &'a mut Json,
    /// Whether there is no element yet.
    first: bool,
    /// Whether each element is on its own line.
    lines: bool,
}

impl Array<'_> {
    fn next(&mut self) -> &mut Json {
        self.json.separate(&mut self.first, self.lines);
        self.json
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) {
        self.next().number(number);
    }

    /// Adds a number, or a string if it is not finite.
    pub(super) fn float(&mut self, number: f64) {
        self.next().float(number);
    }

    pub(super) fn null(&mut self) {
        self.next().raw("null");
    }

    /// Adds an element that is already JSON.
    pub(super) fn raw(&mut self, json: &str) {
        self.next().raw(json);
    }

    pub(super) fn string(&mut self, text: &str) {
        self.next().string(text);
    }

    pub(super) fn object(&mut self, write: impl FnOnce(&mut Object<'_>)) {
        self.next().object(write);
    }

    pub(super) fn array(&mut self, write: impl FnOnce(&mut Array<'_>)) {
        self.next().array(false, write);
    }
}

/// Members of an object, kept as text because many objects share them. There is a comma before each.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Json);

impl Members {
    pub(super) fn new(write: impl FnOnce(&mut Object<'_>)) -> Self {
        let mut json = Json::default();
        write(&mut Object { json: &mut json, first: false, lines: false });
        Self(json)
    }
}

/// A string between quotes, kept because many objects share it.
#[derive(Clone, Debug)]
pub(super) struct Quoted(Json);

impl Quoted {
    pub(super) fn new(text: &str) -> Self {
        let mut json = Json::default();
        json.string(text);
        Self(json)
    }
}

#[cfg(test)]
mod tests;
