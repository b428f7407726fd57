//! JSON values as text, parsed on demand.

use super::words::digits_until;
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

#[cfg(test)]
mod tests {
    use super::Raw;

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
}
