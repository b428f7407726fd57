//! Protobuf's wire format, written field by field, and requests made of it.
//!
//! A window may become 100,000 spans. They are encoded as they are produced, without a struct for each: `prost` can
//! only encode messages that are structs, and its functions for single fields are hidden. The core has a copy of this
//! for its own files.

/// Writes a number that is not negative, a boolean, an enumeration, or the bits of a signed number.
pub(crate) fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    key(out, field, 0);
    varint(out, value);
}

/// Writes bytes, a text, or an already encoded message.
pub(crate) fn bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    length(out, field, bytes.len());
    out.extend_from_slice(bytes);
}

/// Writes a message that `write` encodes. Most lengths take one byte; if one takes more, the message is moved to make
/// room.
pub(crate) fn message(out: &mut Vec<u8>, field: u32, write: impl FnOnce(&mut Vec<u8>)) {
    key(out, field, 2);
    out.push(0);
    let start = out.len();
    write(out);
    let length = out.len() - start;
    if let Some(place) = out.get_mut(start - 1).filter(|_| length < 0x80) {
        *place = length as u8;
        return;
    }
    let mut longer = Vec::new();
    varint(&mut longer, length as u64);
    out.splice(start - 1..start, longer);
}

/// Writes the length of a field whose bytes follow.
pub(crate) fn length(out: &mut Vec<u8>, field: u32, length: usize) {
    key(out, field, 2);
    varint(out, length as u64);
}

/// Writes eight bytes: `double`, `fixed64`, `sfixed64`.
pub(crate) fn fixed64(out: &mut Vec<u8>, field: u32, value: [u8; 8]) {
    key(out, field, 1);
    out.extend_from_slice(&value);
}

/// Writes four bytes: `fixed32`.
pub(crate) fn fixed32(out: &mut Vec<u8>, field: u32, value: [u8; 4]) {
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

/// An encoded request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) body: Vec<u8>,
    /// How many spans or points it contains.
    pub(crate) items: u64,
}

impl Request {
    /// Creates a request from encoded spans or metrics. `ExportTraceServiceRequest` and `ExportMetricsServiceRequest`
    /// have the same outer messages.
    pub(crate) fn new(resource: &[u8], encoded: &[u8], items: u64) -> Self {
        let mut scope = Vec::new();
        message(&mut scope, 1, |out| {
            bytes(out, 1, b"kernspan");
            bytes(out, 2, env!("CARGO_PKG_VERSION").as_bytes());
        });
        let mut of_resource = Vec::new();
        bytes(&mut of_resource, 1, resource);
        let mut head = Vec::new();
        length(&mut head, 2, scope.len() + encoded.len());
        let mut body = Vec::with_capacity(encoded.len() + of_resource.len() + scope.len() + 32);
        length(&mut body, 1, of_resource.len() + head.len() + scope.len() + encoded.len());
        [&of_resource, &head, &scope, encoded].into_iter().for_each(|part| body.extend_from_slice(part));
        Self { body, items }
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, fixed32, fixed64, message, number};
    use prost::Message;

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
}
