//! Events in protobuf's wire format.
//!
//! A trace has millions of events, so they are encoded field by field, without structs. The field numbers are those in
//! [`proto`](super::proto), which tests decode them with.

use super::proto::Type;
use crate::export::wire::{bytes, fixed64, message, number};

/// An encoded `TrackEvent`.
#[derive(Clone, Debug, Default)]
pub(super) struct Event(Vec<u8>);

/// The value of a `DebugAnnotation`.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnnotationValue<'a> {
    Bool(bool),
    U64(u64),
    I64(i64),
    F64(f64),
    Text(&'a str),
    /// The number of an interned text.
    Interned(u64),
}

impl Event {
    /// The end of a slice, which has no other fields.
    pub(super) const SLICE_END: [u8; 2] = [9 << 3, Type::SliceEnd as u8];

    /// Returns an event of this type. It reuses the memory of an event that was written.
    pub(super) fn new(kind: Type, used: Self) -> Self {
        let mut event = used;
        event.0.clear();
        number(&mut event.0, 9, kind as u64);
        event
    }

    /// Returns a copy of this event. It reuses the memory of an event that was written.
    pub(super) fn copy_into(&self, mut used: Self) -> Self {
        used.0.clone_from(&self.0);
        used
    }

    #[must_use]
    pub(super) fn name(mut self, name: &str) -> Self {
        bytes(&mut self.0, 23, name.as_bytes());
        self
    }

    #[must_use]
    pub(super) fn interned_name(mut self, iid: u64) -> Self {
        number(&mut self.0, 10, iid);
        self
    }

    #[must_use]
    pub(super) fn category(mut self, iid: u64) -> Self {
        number(&mut self.0, 3, iid);
        self
    }

    #[must_use]
    pub(super) fn source_location(mut self, iid: u64) -> Self {
        number(&mut self.0, 34, iid);
        self
    }

    /// Puts the event on a track other than that of its sequence.
    #[must_use]
    pub(super) fn track(mut self, uuid: u64) -> Self {
        number(&mut self.0, 11, uuid);
        self
    }

    #[must_use]
    pub(super) fn counter_value(mut self, value: f64) -> Self {
        fixed64(&mut self.0, 44, value.to_le_bytes());
        self
    }

    pub(super) fn begin_flow(&mut self, id: u64) {
        fixed64(&mut self.0, 47, id.to_le_bytes());
    }

    pub(super) fn end_flow(&mut self, id: u64) {
        fixed64(&mut self.0, 48, id.to_le_bytes());
    }

    pub(super) fn annotate(&mut self, name_iid: u64, value: AnnotationValue<'_>) {
        message(&mut self.0, 4, |out| {
            number(out, 1, name_iid);
            match value {
                AnnotationValue::Bool(value) => number(out, 2, value.into()),
                AnnotationValue::U64(value) => number(out, 3, value),
                AnnotationValue::I64(value) => number(out, 4, value.cast_unsigned()),
                AnnotationValue::F64(value) => fixed64(out, 5, value.to_le_bytes()),
                AnnotationValue::Text(text) => bytes(out, 6, text.as_bytes()),
                AnnotationValue::Interned(iid) => number(out, 17, iid),
            }
        });
    }

    /// Adds the fields of another event.
    pub(super) fn extend(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::{AnnotationValue, Event};
    use crate::export::perfetto::proto::{DebugAnnotation, TrackEvent, Type};
    use prost::Message;

    #[test]
    fn events_read_back_as_the_messages_they_are() {
        let mut event = Event::new(Type::SliceBegin, Event::default());
        event =
            event.name("a name").interned_name(300).category(5).source_location(7).track(1 << 40).counter_value(0.5);
        event.begin_flow(u64::MAX);
        event.end_flow(2);
        let text = "long ".repeat(100);
        for value in [
            AnnotationValue::Bool(true),
            AnnotationValue::U64(u64::MAX),
            AnnotationValue::I64(-1),
            AnnotationValue::F64(-0.5),
            AnnotationValue::Text(&text),
            AnnotationValue::Interned(12),
        ] {
            event.annotate(1, value);
        }
        let one = DebugAnnotation { name_iid: Some(1), ..DebugAnnotation::default() };
        let expected = TrackEvent {
            category_iids: vec![5],
            r#type: Some(Type::SliceBegin as i32),
            name: Some("a name".to_owned()),
            name_iid: Some(300),
            source_location_iid: Some(7),
            track_uuid: Some(1 << 40),
            double_counter_value: Some(0.5),
            flow_ids: vec![u64::MAX],
            terminating_flow_ids: vec![2],
            debug_annotations: vec![
                DebugAnnotation { bool_value: Some(true), ..one.clone() },
                DebugAnnotation { uint_value: Some(u64::MAX), ..one.clone() },
                DebugAnnotation { int_value: Some(-1), ..one.clone() },
                DebugAnnotation { double_value: Some(-0.5), ..one.clone() },
                DebugAnnotation { string_value: Some(text.clone()), ..one.clone() },
                DebugAnnotation { string_value_iid: Some(12), ..one },
            ],
        };
        assert_eq!(TrackEvent::decode(event.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn the_end_of_a_slice_has_no_other_fields() {
        let expected = TrackEvent { r#type: Some(Type::SliceEnd as i32), ..TrackEvent::default() };
        assert_eq!(TrackEvent::decode(&Event::SLICE_END[..]).unwrap(), expected);
    }
}
