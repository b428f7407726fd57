//! JSON values as text, parsed on demand, and a search for their ends, eight bytes at a time.

use crate::trace::{Timestamp, Value};
use std::borrow::Cow;

/// The text of a JSON value; empty if there is none.
///
/// Times are parsed from their decimal digits: a floating-point number would lose nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Raw<'a>(pub(super) &'a str);

impl<'a> Raw<'a> {
    /// The text without its quotes, if any. Some writers quote numbers.
    fn unquoted(self) -> &'a str {
        self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(self.0)
    }

    pub(super) fn u64(self) -> Option<u64> {
        self.unquoted().parse().ok()
    }

    pub(super) fn u32(self) -> Option<u32> {
        self.unquoted().parse().ok()
    }

    pub(super) fn i64(self) -> Option<i64> {
        self.unquoted().parse().ok()
    }

    pub(super) fn f64(self) -> Option<f64> {
        self.unquoted().parse().ok()
    }

    pub(super) fn bool(self) -> Option<bool> {
        self.0.parse().ok()
    }

    /// The string, if it is one.
    pub(super) fn text(self) -> Option<Cow<'a, str>> {
        let inner = self.0.strip_prefix('"')?.strip_suffix('"')?;
        match inner.contains('\\') {
            true => serde_json::from_str(self.0).ok().map(Cow::Owned),
            false => Some(Cow::Borrowed(inner)),
        }
    }

    /// Three numbers, as in a kernel's grid.
    pub(super) fn three(self) -> Option<[u32; 3]> {
        let mut rest = self.0.strip_prefix('[')?.strip_suffix(']')?.as_bytes();
        let mut number = || {
            let text = rest.trim_ascii_start();
            let (number, after) = text.split_at(digits_until(text, 0));
            rest = match after.trim_ascii_start() {
                [] => &[],
                [b',', rest @ ..] => rest,
                _ => return None,
            };
            decimal(number)?.try_into().ok()
        };
        Some([number()?, number()?, number()?])
    }

    /// Nanoseconds, from a number of microseconds that is not negative.
    pub(super) fn nanos(self) -> Option<u64> {
        let text = self.unquoted().as_bytes();
        let (whole, rest) = text.split_at(digits_until(text, 0));
        let decimals = rest.strip_prefix(b".").unwrap_or(rest);
        if whole.is_empty() || digits_until(decimals, 0) < decimals.len() {
            let micros = self.f64().filter(|micros| *micros >= 0.0 && *micros < u64::MAX as f64 / 1e3)?;
            return Some((micros * 1e3).round() as u64);
        }
        let digit = |index: usize| decimals.get(index).map_or(0, |digit| u64::from(digit - b'0'));
        let fraction = digit(0) * 100 + digit(1) * 10 + digit(2) + u64::from(digit(3) >= 5);
        decimal(whole)?.checked_mul(1000)?.checked_add(fraction)
    }

    /// A moment, given in microseconds since the document's base.
    pub(super) fn moment(self) -> Option<Timestamp> {
        self.nanos().map(Timestamp::from_unix_nanos)
    }

    /// The value of a field: a list or object is text.
    pub(super) fn value(self) -> Option<Value> {
        match self.0.as_bytes().first()? {
            b'"' => self.text().map(|text| Value::from(&*text)),
            b't' | b'f' => self.bool().map(Value::Bool),
            b'n' => None,
            b'[' | b'{' => Some(Value::from(self.0)),
            b'-' => self.i64().map(Value::I64).or_else(|| self.f64().map(Value::F64)),
            _ => self.u64().map(Value::U64).or_else(|| self.f64().map(Value::F64)),
        }
    }
}

/// Parses digits as a number. `None` if there are none, or too many.
#[inline]
fn decimal(digits: &[u8]) -> Option<u64> {
    match digits.len() {
        0 => None,
        // Less than 10^19, which needs no checks.
        1..=19 => Some(digits.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))),
        _ => std::str::from_utf8(digits).ok()?.parse().ok(),
    }
}

/// A word of eight bytes that are all 1.
const ONES: u64 = u64::MAX / 255;
/// The highest bit of each byte of a word.
const HIGHS: u64 = ONES << 7;

/// Returns the eight bytes at `at`, the first one lowest, if there are that many.
#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..)?.first_chunk::<8>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// Returns the index of the first quote, backslash or control character at or after `at`, or the length.
#[inline]
pub(super) fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    // Eight bytes at a time. A byte is less than another if subtracting that borrows, which sets the highest bit; bytes
    // that already have this bit are not ASCII. Borrows reach only later bytes, so the first one found is right.
    while let Some(word) = word_at(bytes, at) {
        let quotes = (word ^ (ONES * u64::from(b'"'))).wrapping_sub(ONES);
        let backslashes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
        let controls = word.wrapping_sub(ONES * 0x20);
        let found = (quotes | backslashes | controls) & !word & HIGHS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let is_plain = |byte: &&u8| !matches!(**byte, b'"' | b'\\' | 0..0x20);
    at + bytes.get(at..).unwrap_or_default().iter().take_while(is_plain).count()
}

/// Returns the index of the first byte at or after `at` that is not a space, or the length.
#[inline]
pub(super) fn spaces_until(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word_at(bytes, at) {
        let found = word ^ (ONES * u64::from(b' '));
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| **byte == b' ').count()
}

/// Returns the index of the first byte at or after `at` that is not a digit, or the length.
#[inline]
pub(super) fn digits_until(bytes: &[u8], mut at: usize) -> usize {
    // As in `plain_until`. Adding also carries only into later bytes.
    while let Some(word) = word_at(bytes, at) {
        let above = word.wrapping_add(ONES * u64::from(0x7f - b'9'));
        let below = word.wrapping_sub(ONES * u64::from(b'0'));
        let found = (above | below | word) & HIGHS;
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + bytes.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count()
}

#[cfg(test)]
mod tests {
    use super::{Raw, digits_until, plain_until, spaces_until};
    use proptest::prelude::*;

    #[test]
    fn microseconds_are_read_to_the_nanosecond() {
        assert_eq!(Raw("3844578790141.244").nanos(), Some(3_844_578_790_141_244));
        assert_eq!(Raw("5.09").nanos(), Some(5_090));
        assert_eq!(Raw("7").nanos(), Some(7_000));
        assert_eq!(Raw("0.0009765625").nanos(), Some(1));
        assert_eq!(Raw("1.5e3").nanos(), Some(1_500_000));
        assert_eq!(Raw("\"12.001\"").nanos(), Some(12_001));
        for nonsense in ["-1", "", "null", "1.2.3", "18446744073709551615", "NaN", "1e300"] {
            assert_eq!(Raw(nonsense).nanos(), None, "{nonsense}");
        }
    }

    #[test]
    fn a_grid_has_three_numbers() {
        assert_eq!(Raw("[512, 1,1]").three(), Some([512, 1, 1]));
        assert_eq!(Raw("[ 4294967295 , 0, 7 ]").three(), Some([u32::MAX, 0, 7]));
        for nonsense in ["", "[]", "[1, 2]", "[1, -2, 3]", "[1, 4294967296, 3]", "[1, 2, 3.5]", "1, 2, 3"] {
            assert_eq!(Raw(nonsense).three(), None, "{nonsense}");
        }
    }

    #[test]
    fn strings_lose_their_quotes_and_escapes() {
        assert_eq!(Raw(r#""plain""#).text().unwrap(), "plain");
        assert_eq!(Raw(r#""a\n\"b\" é""#).text().unwrap(), "a\n\"b\" é");
        assert_eq!(Raw("7").text(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn the_end_of_plain_text_is_found(bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0_usize..41) {
            let is_plain = |byte: u8| byte >= 0x20 && byte != b'"' && byte != b'\\';
            let expected = (at..bytes.len()).find(|&at| !is_plain(bytes[at])).unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(plain_until(&bytes, at), expected);
        }

        #[test]
        fn the_end_of_digits_is_found(
            bytes in prop::collection::vec(prop_oneof![3 => b'0'..=b'9', 1 => any::<u8>()], 0..40),
            at in 0_usize..41,
        ) {
            let expected = (at..bytes.len()).find(|&at| !bytes[at].is_ascii_digit()).unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(digits_until(&bytes, at), expected);
        }

        #[test]
        fn the_end_of_spaces_is_found(text in " {0,20}[ a\n]{0,3} {0,20}", at in 0_usize..44) {
            let bytes = text.as_bytes();
            let expected = (at..bytes.len()).find(|&at| bytes[at] != b' ').unwrap_or(at.max(bytes.len()));
            prop_assert_eq!(spaces_until(bytes, at), expected);
        }
    }
}
