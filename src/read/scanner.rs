//! A JSON scanner.

use self::Wrong::Unexpected;
use super::raw::{Raw, digits_until, plain_until, spaces_until};
use std::borrow::Cow;

/// A scanner of JSON text, which checks all of it and copies only strings with escapes.
///
/// Values are returned as text and parsed on demand. `serde_json` can do the same with `RawValue`, but reading a trace
/// then took a quarter more instructions (`benches/README.md`).
#[derive(Debug)]
pub(super) struct Scanner<'a> {
    text: &'a str,
    /// The number of bytes read.
    at: usize,
    /// The open lists and objects around the value being skipped.
    open: Vec<Bracket>,
}

/// The reason the text is not the expected JSON. The scanner is at the place where that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Something else was expected, or the text ends.
    Unexpected(&'static str),
    /// An object that has been read lacks a member.
    Missing(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bracket {
    List,
    Object,
}

/// The byte returned at the end of the text. It does not occur in valid JSON.
const END: u8 = 0;

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, open: Vec::new() }
    }

    /// Returns the first byte of the next value, and skips the space before it.
    #[inline]
    pub(super) fn peek(&mut self) -> u8 {
        let byte = self.byte();
        if byte > b' ' { byte } else { self.skip_space() }
    }

    /// Skips white space, and returns the byte after it.
    fn skip_space(&mut self) -> u8 {
        loop {
            // Most of it is indentation.
            self.at = spaces_until(self.text.as_bytes(), self.at);
            match self.byte() {
                b'\n' | b'\t' | b'\r' => self.at += 1,
                byte => return byte,
            }
        }
    }

    /// Reads a list, whose elements `element` reads.
    #[inline]
    pub(super) fn list(&mut self, mut element: impl FnMut(&mut Self) -> Result<(), Wrong>) -> Result<(), Wrong> {
        self.expect(b'[', "expected a list")?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            element(self)?;
            if !self.goes_on(b']')? {
                return Ok(());
            }
        }
    }

    /// Reads an object, whose values `member` reads by their keys.
    #[inline]
    pub(super) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, Cow<'a, str>) -> Result<(), Wrong>,
    ) -> Result<(), Wrong> {
        self.expect(b'{', "expected an object")?;
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            let key = self.key()?;
            member(self, key)?;
            if !self.goes_on(b'}')? {
                return Ok(());
            }
        }
    }

    /// Reads a key and its colon.
    #[inline]
    pub(super) fn key(&mut self) -> Result<Cow<'a, str>, Wrong> {
        self.peek();
        let start = self.at;
        let is_plain = self.skip_string()?;
        let key = self.unquoted(start, is_plain).ok_or(Unexpected("invalid unicode code point"))?;
        self.expect(b':', "expected `:`")?;
        Ok(key)
    }

    /// Reads a comma, or the bracket that ends a list or an object. Returns whether it was a comma.
    #[inline]
    pub(super) fn goes_on(&mut self, end: u8) -> Result<bool, Wrong> {
        let byte = self.peek();
        if byte == b',' || byte == end {
            self.at += 1;
            return Ok(byte == b',');
        }
        Err(Unexpected(if end == b']' { "expected `,` or `]`" } else { "expected `,` or `}`" }))
    }

    /// Reads a value.
    #[inline(always)]
    pub(super) fn value(&mut self) -> Result<Raw<'a>, Wrong> {
        let first = self.peek();
        let start = self.at;
        match first {
            b'"' => drop(self.skip_string()?),
            b'[' | b'{' => self.skip_nested()?,
            _ => self.skip_scalar()?,
        }
        Ok(self.since(start))
    }

    /// Reads a string, or any other value as it is written.
    #[inline]
    pub(super) fn text(&mut self) -> Result<Cow<'a, str>, Wrong> {
        if self.peek() != b'"' {
            return Ok(Cow::Borrowed(self.value()?.0));
        }
        let start = self.at;
        let is_plain = self.skip_string()?;
        Ok(self.unquoted(start, is_plain).unwrap_or(Cow::Borrowed(self.since(start).0)))
    }

    /// Reads the end of the text.
    pub(super) fn end(&mut self) -> Result<(), Wrong> {
        self.peek();
        match self.at == self.text.len() {
            true => Ok(()),
            false => Err(Unexpected("trailing characters")),
        }
    }

    /// The number of bytes that have been read.
    #[inline]
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The text that has not been read.
    #[inline]
    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips this many bytes of text that is known to come next.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Returns to an earlier position.
    pub(super) fn go_back(&mut self, position: usize) {
        self.at = position;
    }

    /// Whether all of the text has been read, so that a part that ends or fails here may continue in more text.
    pub(super) fn is_at_end(&self) -> bool {
        self.at >= self.text.len()
    }

    #[inline]
    fn byte(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(END)
    }

    /// Reads this byte if it comes next.
    #[inline]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        // Not `self.at += usize::from(is_next)`, which rustc miscompiled: see docs/miscompilation.md.
        if self.peek() != byte {
            return false;
        }
        self.at += 1;
        true
    }

    #[inline]
    pub(super) fn expect(&mut self, byte: u8, otherwise: &'static str) -> Result<(), Wrong> {
        if self.take(byte) { Ok(()) } else { Err(Unexpected(otherwise)) }
    }

    #[inline]
    fn since(&self, start: usize) -> Raw<'a> {
        Raw(&self.text[start..self.at])
    }

    /// Returns the string from `start` to here, without its quotes and escapes. `None` if its escapes are invalid.
    #[inline(always)]
    fn unquoted(&self, start: usize, is_plain: bool) -> Option<Cow<'a, str>> {
        match is_plain {
            true => Some(Cow::Borrowed(&self.text[start + 1..self.at - 1])),
            false => self.since(start).text(),
        }
    }

    /// Skips a string. Returns whether it has no escapes.
    #[inline]
    fn skip_string(&mut self) -> Result<bool, Wrong> {
        if self.byte() != b'"' {
            return Err(Unexpected("expected a string"));
        }
        self.at += 1;
        let mut is_plain = true;
        loop {
            self.at = plain_until(self.text.as_bytes(), self.at);
            match self.byte() {
                b'"' => break self.at += 1,
                b'\\' => {
                    is_plain = false;
                    self.skip_escape()?;
                }
                _ => return Err(Unexpected("control character (\\u0000-\\u001F) found while parsing a string")),
            }
        }
        Ok(is_plain)
    }

    #[cold]
    fn skip_escape(&mut self) -> Result<(), Wrong> {
        self.at += 1;
        match self.byte() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.byte().is_ascii_hexdigit() {
                        return Err(Unexpected("invalid escape"));
                    }
                    self.at += 1;
                }
            }
            _ => return Err(Unexpected("invalid escape")),
        }
        Ok(())
    }

    /// Skips a number, `true`, `false` or `null`.
    #[inline(always)]
    fn skip_scalar(&mut self) -> Result<(), Wrong> {
        let word = match self.byte() {
            b'-' | b'0'..=b'9' => return self.skip_number(),
            b't' => "true",
            b'f' => "false",
            b'n' => "null",
            _ => return Err(Unexpected("expected value")),
        };
        for byte in word.bytes() {
            if self.byte() != byte {
                return Err(Unexpected("expected `true`, `false` or `null`"));
            }
            self.at += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn skip_number(&mut self) -> Result<(), Wrong> {
        if self.byte() == b'-' {
            self.at += 1;
        }
        let starts_with_zero = self.byte() == b'0';
        let digits = self.skip_digits()?;
        if starts_with_zero && digits > 1 {
            return Err(Unexpected("invalid number"));
        }
        if self.byte() == b'.' {
            self.at += 1;
            self.skip_digits()?;
        }
        if matches!(self.byte(), b'e' | b'E') {
            self.at += 1;
            if matches!(self.byte(), b'+' | b'-') {
                self.at += 1;
            }
            self.skip_digits()?;
        }
        Ok(())
    }

    /// Skips digits, and returns how many there are, at least one.
    #[inline]
    fn skip_digits(&mut self) -> Result<usize, Wrong> {
        let start = self.at;
        self.at = digits_until(self.text.as_bytes(), start);
        match self.at - start {
            0 => Err(Unexpected("invalid number")),
            digits => Ok(digits),
        }
    }

    /// Skips a list or an object.
    fn skip_nested(&mut self) -> Result<(), Wrong> {
        self.open.clear();
        loop {
            match self.peek() {
                b'"' => drop(self.skip_string()?),
                b'[' => {
                    self.at += 1;
                    if !self.take(b']') {
                        self.open.push(Bracket::List);
                        continue;
                    }
                }
                b'{' => {
                    self.at += 1;
                    if !self.take(b'}') {
                        self.open.push(Bracket::Object);
                        self.skip_key()?;
                        continue;
                    }
                }
                _ => self.skip_scalar()?,
            }
            // After a value: the next one, or the ends of the enclosing ones.
            loop {
                let Some(&around) = self.open.last() else { return Ok(()) };
                match (self.peek(), around) {
                    (b',', Bracket::List) => break self.at += 1,
                    (b',', Bracket::Object) => {
                        self.at += 1;
                        break self.skip_key()?;
                    }
                    (b']', Bracket::List) | (b'}', Bracket::Object) => {
                        self.at += 1;
                        self.open.pop();
                    }
                    (_, Bracket::List) => return Err(Unexpected("expected `,` or `]`")),
                    (_, Bracket::Object) => return Err(Unexpected("expected `,` or `}`")),
                }
            }
        }
    }

    /// Skips a key and its colon.
    fn skip_key(&mut self) -> Result<(), Wrong> {
        self.peek();
        self.skip_string()?;
        self.expect(b':', "expected `:`")
    }
}

impl<'a> Raw<'a> {
    /// The elements, if it is a list.
    pub(super) fn list(self) -> Option<Vec<Raw<'a>>> {
        let mut elements = Vec::new();
        let read = Scanner::new(self.0).list(|scanner| {
            elements.push(scanner.value()?);
            Ok(())
        });
        read.ok().map(|()| elements)
    }

    /// The members, if it is an object.
    pub(super) fn members(self) -> Option<Vec<(Cow<'a, str>, Raw<'a>)>> {
        let mut members = Vec::new();
        let read = Scanner::new(self.0).object(|scanner, key| {
            members.push((key, scanner.value()?));
            Ok(())
        });
        read.ok().map(|()| members)
    }
}

#[cfg(test)]
mod tests;
