//! Summaries, the content of events: scalars, texts and hyperparameters.
//!
//! The field numbers are those of `Summary` in `tensorboard/compat/proto/summary.proto`, and of the hyperparameters in
//! `tensorboard/plugins/hparams/plugin_data.proto`.

use super::tag;
use crate::{
    export::wire::{bytes, fixed32, fixed64, message, number},
    trace::{Timestamp, Value},
};

/// The data class of texts and hyperparameters.
const DATA_CLASS_TENSOR: u64 = 2;
/// Element types of tensors.
const DT_FLOAT: u64 = 1;
const DT_STRING: u64 = 7;
/// The ways in which a session ends.
const STATUS_SUCCESS: u64 = 1;
const STATUS_FAILURE: u64 = 2;

/// An encoded `Summary`: values with their tags.
#[derive(Debug, Default)]
pub(super) struct Summary(Vec<u8>);

impl Summary {
    /// Adds a number, which TensorBoard stores with 32 bits. It need not be finite.
    pub(super) fn scalar(&mut self, tag: &str, value: f64) {
        message(&mut self.0, 1, |out| {
            bytes(out, 1, tag.as_bytes());
            fixed32(out, 2, (value as f32).to_le_bytes());
        });
    }

    /// Adds a text, in Markdown.
    pub(super) fn text(&mut self, tag: &str, text: &str) {
        message(&mut self.0, 1, |out| {
            bytes(out, 1, tag.as_bytes());
            message(out, 8, |tensor| {
                number(tensor, 1, DT_STRING);
                // The shape of one text, not of a list of them.
                message(tensor, 2, |_| ());
                bytes(tensor, 8, text.as_bytes());
            });
            message(out, 9, |metadata| {
                message(metadata, 1, |plugin| bytes(plugin, 1, b"text"));
                number(metadata, 4, DATA_CLASS_TENSOR);
            });
        });
    }

    /// Adds the beginning of a session, with the values of its hyperparameters.
    pub(super) fn hparams(&mut self, hparams: &[(String, Value)], group: &str, at: Timestamp) {
        self.hparams_data(tag::HPARAMS_START, 3, |session| {
            for (name, value) in hparams {
                // An entry of a map.
                message(session, 1, |entry| {
                    bytes(entry, 1, name.as_bytes());
                    message(entry, 2, |out| match value {
                        Value::Bool(value) => number(out, 4, (*value).into()),
                        Value::Str(text) => bytes(out, 3, text.as_bytes()),
                        other => fixed64(out, 2, other.as_f64().unwrap_or(f64::NAN).to_le_bytes()),
                    });
                });
            }
            bytes(session, 4, group.as_bytes());
            fixed64(session, 5, seconds(at).to_le_bytes());
        });
    }

    /// Adds the end of a session, which may have failed.
    pub(super) fn hparams_end(&mut self, at: Timestamp, failed: bool) {
        self.hparams_data(tag::HPARAMS_END, 4, |session| {
            number(session, 1, if failed { STATUS_FAILURE } else { STATUS_SUCCESS });
            fixed64(session, 2, seconds(at).to_le_bytes());
        });
    }

    /// Adds a message for the hyperparameter plugin, which reads it from the metadata of a value that is an empty
    /// tensor.
    fn hparams_data(&mut self, tag: &str, kind: u32, write: impl FnOnce(&mut Vec<u8>)) {
        message(&mut self.0, 1, |out| {
            bytes(out, 1, tag.as_bytes());
            message(out, 8, |tensor| {
                number(tensor, 1, DT_FLOAT);
                message(tensor, 2, |shape| message(shape, 2, |_| ()));
            });
            message(out, 9, |metadata| {
                message(metadata, 1, |plugin| {
                    bytes(plugin, 1, b"hparams");
                    message(plugin, 2, |content| message(content, kind, write));
                });
                number(metadata, 4, DATA_CLASS_TENSOR);
            });
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns a time in seconds since 1970, as TensorBoard stores it.
pub(super) fn seconds(at: Timestamp) -> f64 {
    at.as_unix_nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::Summary;
    use crate::trace::{Timestamp, Value};

    /// Bytes as text. The expected ones are from TensorBoard's own writers, in its Python package 2.21.
    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn scalars_are_as_tensorboard_writes_them() {
        let mut summary = Summary::default();
        summary.scalar("loss", 0.5);
        summary.scalar("nan", f64::INFINITY);
        assert_eq!(hex(summary.as_bytes()), "0a0b0a046c6f7373150000003f0a0a0a036e616e150000807f");
    }

    #[test]
    fn texts_are_as_tensorboard_writes_them() {
        let mut summary = Summary::default();
        summary.text("kernspan/gpu", "**none**");
        assert_eq!(
            hex(summary.as_bytes()),
            "0a2a0a0c6b65726e7370616e2f677075420e0807120042082a2a6e6f6e652a2a4a0a0a060a04746578742002"
        );
    }

    #[test]
    fn hyperparameters_are_as_tensorboard_writes_them() {
        let hparams = [
            ("amp".to_owned(), Value::from(true)),
            ("lr".to_owned(), Value::from(0.5)),
            ("o".to_owned(), Value::from("adamw")),
        ];
        let mut summary = Summary::default();
        summary.hparams(&hparams, "run", Timestamp::from_unix_nanos(1_500_000_000));
        summary.hparams_end(Timestamp::from_unix_nanos(2_500_000_000), false);
        assert_eq!(
            hex(summary.as_bytes()),
            concat!(
                "0a710a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f42060801120212004a490a450a076870",
                "6172616d73123a1a380a090a03616d70120220010a0f0a026c72120911000000000000e03f0a0c0a016f12071a056164",
                "616d77220372756e29000000000000f83f20020a420a1a5f68706172616d735f2f73657373696f6e5f656e645f696e66",
                "6f42060801120212004a1c0a180a0768706172616d73120d220b08011100000000000004402002",
            )
        );
    }
}
