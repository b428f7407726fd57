//! JSON, written straight into a buffer: a trace is a million small objects of known shape.

use crate::trace::Value;
use std::io::{self, Write};

/// A buffer with the pieces of JSON, passed on whenever it is large enough.
pub(super) struct Json<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Json<W> {
    const LIMIT: usize = 1 << 16;

    pub(super) fn new(out: W) -> Self {
        Self { out, buffer: Vec::new() }
    }

    /// To be called between objects.
    pub(super) fn pass_on(&mut self) -> io::Result<()> {
        if self.buffer.len() >= Self::LIMIT { self.finish() } else { Ok(()) }
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.out.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// What has not been passed on.
    pub(super) fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    /// JSON as it is.
    pub(super) fn raw(&mut self, json: impl AsRef<[u8]>) -> &mut Self {
        self.buffer.extend_from_slice(json.as_ref());
        self
    }

    pub(super) fn string(&mut self, text: &str) -> &mut Self {
        self.buffer.push(b'"');
        let bytes = text.as_bytes();
        let mut written = 0;
        for (place, &byte) in bytes.iter().enumerate() {
            if byte >= 0x20 && byte != b'"' && byte != b'\\' {
                continue;
            }
            self.buffer.extend_from_slice(&bytes[written..place]);
            written = place + 1;
            match byte {
                b'"' => self.raw(br#"\""#),
                b'\\' => self.raw(br"\\"),
                b'\n' => self.raw(br"\n"),
                b'\t' => self.raw(br"\t"),
                _ => self.raw(format!("\\u{byte:04x}")),
            };
        }
        self.buffer.extend_from_slice(&bytes[written..]);
        self.buffer.push(b'"');
        self
    }

    pub(super) fn number(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.raw(itoa::Buffer::new().format(number))
    }

    /// A number, or a string for what JSON cannot say.
    pub(super) fn float(&mut self, number: f64) -> &mut Self {
        // The shortest text that reads back as the same number; `Debug` keeps it a float and turns to exponents when long.
        if !number.is_finite() {
            return self.string(&number.to_string());
        }
        // Into memory that grows, which does not fail.
        let _ = write!(self.buffer, "{number:?}");
        self
    }

    /// Nanoseconds as microseconds with three decimals.
    pub(super) fn micros(&mut self, nanos: u64) -> &mut Self {
        self.raw(Micros::of(nanos))
    }

    pub(super) fn value(&mut self, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => self.raw(if *value { "true" } else { "false" }),
            Value::I64(value) => self.number(*value),
            Value::U64(value) => self.number(*value),
            Value::F64(value) => self.float(*value),
            Value::Str(value) => self.string(value),
        }
    }
}

/// Nanoseconds as microseconds with three decimals: the text, for what is written more than once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Micros {
    text: [u8; Self::MOST],
    first: usize,
}

impl Micros {
    /// Those of `u64::MAX`.
    const MOST: usize = 21;

    pub(super) fn of(nanos: u64) -> Self {
        let mut text = [b'.'; Self::MOST];
        let mut put = |place: usize, pair: u64| text[place..place + 2].copy_from_slice(&PAIRS[pair as usize % 100]);
        let (mut rest, decimals) = (nanos / 1000, nanos % 1000);
        put(19, decimals % 100);
        let mut first = 17;
        while rest >= 100 {
            first -= 2;
            put(first, rest % 100);
            rest /= 100;
        }
        if rest >= 10 {
            first -= 2;
            put(first, rest);
        } else {
            first -= 1;
            text[first] = b'0' + rest as u8;
        }
        text[18] = b'0' + (decimals / 100) as u8;
        Self { text, first }
    }
}

/// `00` to `99`.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

impl AsRef<[u8]> for Micros {
    fn as_ref(&self) -> &[u8] {
        &self.text[self.first..]
    }
}

#[cfg(test)]
mod tests {
    use super::{Json, Micros};
    use crate::trace::Value;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Json<&mut Vec<u8>>)) -> serde_json::Value {
        let mut out = Vec::new();
        let mut json = Json::new(&mut out);
        write(&mut json);
        json.finish().unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn times_are_microseconds_with_three_decimals() {
        for (nanos, micros) in [(0, 0.0), (7, 0.007), (1_000, 1.0), (1_234_056, 1234.056)] {
            assert_eq!(
                written(|json| {
                    json.micros(nanos);
                }),
                micros
            );
        }
    }

    proptest! {
        #[test]
        fn any_time_is_exact(nanos: u64, shift in 0..64) {
            let nanos = nanos >> shift;
            let micros = Micros::of(nanos);
            prop_assert_eq!(str::from_utf8(micros.as_ref()).unwrap(), format!("{}.{:03}", nanos / 1000, nanos % 1000));
        }
    }

    #[test]
    fn numbers_json_cannot_say_are_strings() {
        assert_eq!(
            written(|json| {
                json.float(f64::NAN);
            }),
            "NaN"
        );
        assert_eq!(
            written(|json| {
                json.float(f64::NEG_INFINITY);
            }),
            "-inf"
        );
        assert_eq!(
            written(|json| {
                json.value(&Value::F64(1e300));
            }),
            1e300
        );
    }

    proptest! {
        #[test]
        fn any_text_reads_back(text in ".*") {
            prop_assert_eq!(written(|json| { json.string(&text); }), text);
        }

        #[test]
        fn any_float_reads_back(number in any::<f64>().prop_filter("finite", |number| number.is_finite())) {
            prop_assert_eq!(written(|json| { json.float(number); }).as_f64(), Some(number));
        }
    }
}
