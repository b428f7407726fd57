//! Protobuf's wire format, for exporters.
//!
//! A trace has millions of events. They are encoded field by field, without a struct for each message: `prost` can only
//! encode messages that are structs, and its functions for single fields are hidden.
//!
//! ```
//! use kernspan::export::wire;
//!
//! let mut out = Vec::new();
//! wire::number(&mut out, 1, 300);
//! wire::message(&mut out, 2, |out| wire::bytes(out, 1, b"forward"));
//! assert_eq!(out, b"\x08\xac\x02\x12\x09\x0a\x07forward");
//! ```

use std::io::{self, Seek, SeekFrom, Write};

/// Appends a varint: a number that is not negative, a boolean, an enumeration, or the bits of an `int64`.
pub fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    key(out, field, 0);
    varint(out, value);
}

/// Appends bytes: `bytes`, a `string`, or a message that has been encoded.
pub fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    key(out, field, 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a nested message that `write` encodes.
///
/// One byte is reserved for the length. If the length needs more, the message is moved.
pub fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, 2);
    out.push(0);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    match out.get_mut(start - 1) {
        Some(byte) if length < 0x80 => *byte = length as u8,
        _ => insert_length(out, start, length),
    }
}

/// Replaces the byte before `start` by a length that does not fit into it.
#[cold]
fn insert_length(out: &mut Vec<u8>, start: usize, length: usize) {
    let mut longer = Vec::new();
    varint(&mut longer, length as u64);
    out.splice(start - 1..start, longer);
}

/// Writes a nested message whose parts are encoded already. Large parts are not copied.
pub(super) fn message_of_parts(out: &mut dyn Write, field: u32, parts: &[&[u8]]) -> io::Result<()> {
    let mut head = Vec::new();
    message_head(&mut head, field, parts.iter().map(|part| part.len()).sum());
    out.write_all(&head)?;
    parts.iter().try_for_each(|part| out.write_all(part))
}

/// Appends the head of a nested message, of which this many bytes come next.
pub fn message_head(out: &mut Vec<u8>, field: u32, length: usize) {
    key(out, field, 2);
    varint(out, length as u64);
}

/// A nested message that is being written piece by piece. Its length is filled in when it is closed.
#[derive(Debug)]
#[must_use = "the length is missing until the message is closed"]
pub(super) struct OpenMessage {
    /// The place of the length.
    at: u64,
}

impl OpenMessage {
    /// The bytes of the length: as many as readers accept, which ask for no more than they need.
    const LENGTH: usize = 5;

    /// Begins a message.
    pub(super) fn begin(out: &mut (impl Write + Seek), field: u32) -> io::Result<Self> {
        let mut head = Vec::new();
        key(&mut head, field, 2);
        out.write_all(&head)?;
        let at = out.stream_position()?;
        out.write_all(&[0; Self::LENGTH])?;
        Ok(Self { at })
    }

    /// Fills in the length.
    pub(super) fn close(self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        let end = out.stream_position()?;
        let length = end - self.at - Self::LENGTH as u64;
        // The same number with leading zeros: each byte but the last says that another one follows.
        let mut bytes: [u8; Self::LENGTH] = std::array::from_fn(|index| (length >> (7 * index)) as u8 | 0x80);
        bytes[Self::LENGTH - 1] &= 0x7f;
        out.seek(SeekFrom::Start(self.at))?;
        out.write_all(&bytes)?;
        out.seek(SeekFrom::Start(end)).map(drop)
    }
}

/// Appends eight bytes as they are: `double`, `fixed64`.
pub fn fixed64(out: &mut Vec<u8>, field: u32, value: [u8; 8]) {
    key(out, field, 1);
    out.extend_from_slice(&value);
}

/// Appends four bytes as they are: `float`, `fixed32`.
pub fn fixed32(out: &mut Vec<u8>, field: u32, value: [u8; 4]) {
    key(out, field, 5);
    out.extend_from_slice(&value);
}

fn key(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::{OpenMessage, bytes, fixed32, fixed64, message, number};
    use prost::Message;
    use std::io::{Cursor, Write};

    #[derive(Clone, PartialEq, Message)]
    struct Sample {
        #[prost(uint64, tag = "1")]
        number: u64,
        #[prost(int64, tag = "2")]
        signed: i64,
        #[prost(double, tag = "3")]
        double: f64,
        #[prost(float, tag = "4")]
        float: f32,
        #[prost(string, tag = "17")]
        text: String,
        #[prost(message, repeated, tag = "300")]
        inner: Vec<Sample>,
    }

    #[test]
    fn fields_read_back_as_what_they_are() {
        let mut out = Vec::new();
        number(&mut out, 1, u64::MAX);
        number(&mut out, 2, (-3_i64).cast_unsigned());
        fixed64(&mut out, 3, (-0.5_f64).to_le_bytes());
        fixed32(&mut out, 4, f32::INFINITY.to_le_bytes());
        bytes(&mut out, 17, "snow ☃".as_bytes());
        message(&mut out, 300, |out| number(out, 1, 1));
        message(&mut out, 300, |_| ());
        let one = Sample { number: 1, ..Sample::default() };
        let expected = Sample {
            number: u64::MAX,
            signed: -3,
            double: -0.5,
            float: f32::INFINITY,
            text: "snow ☃".to_owned(),
            inner: vec![one, Sample::default()],
        };
        assert_eq!(Sample::decode(&out[..]).unwrap(), expected);
    }

    #[test]
    fn messages_may_be_of_any_length() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let mut out = vec![7];
            message(&mut out, 17, |out| out.resize(out.len() + length, b'x'));
            assert_eq!(Sample::decode(&out[1..]).unwrap().text.len(), length);
        }
    }

    #[test]
    fn messages_may_be_written_piece_by_piece() {
        for length in [0, 1, 127, 128, 100_000] {
            let mut out = Cursor::new(Vec::new());
            let outer = OpenMessage::begin(&mut out, 300).unwrap();
            let inner = OpenMessage::begin(&mut out, 17).unwrap();
            out.write_all(&vec![b'x'; length]).unwrap();
            inner.close(&mut out).unwrap();
            outer.close(&mut out).unwrap();
            out.write_all(&[8, 1]).unwrap();
            let sample = Sample::decode(&out.into_inner()[..]).unwrap();
            assert_eq!((sample.inner[0].text.len(), sample.number), (length, 1));
        }
    }
}
