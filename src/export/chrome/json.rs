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

#[cfg(test)]
mod tests {
    use super::Json;
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
