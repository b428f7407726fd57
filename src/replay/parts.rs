//! The parts of the protobuf message: a message for each kind of item of a trace.

use crate::trace::{
    Attribution, CallsiteData, Device, DeviceId, FieldData, Level, LoadsData, Operation, SpanId, Value,
};
use prost::Message;
use std::borrow::Cow;

#[derive(Message)]
pub(super) struct LibraryMessage {
    #[prost(string, tag = "1")]
    pub(super) path: String,
    #[prost(uint32, tag = "2")]
    pub(super) cupti_version: u32,
    #[prost(uint32, tag = "3")]
    pub(super) driver_version: u32,
}

#[derive(Message)]
pub(super) struct DeviceMessage {
    #[prost(uint32, tag = "1")]
    pub(super) id: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(string, tag = "3")]
    pub(super) uuid: String,
    #[prost(uint64, tag = "4")]
    pub(super) memory: u64,
    /// The rest, in the order of [`Device`].
    #[prost(uint32, repeated, tag = "5")]
    pub(super) numbers: Vec<u32>,
}

#[derive(Message)]
pub(super) struct CallsiteMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) target: String,
    #[prost(string, optional, tag = "3")]
    pub(super) file: Option<String>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) line: Option<u32>,
    #[prost(string, repeated, tag = "5")]
    pub(super) fields: Vec<String>,
}

/// A field of a span or operation.
#[derive(Message)]
pub(super) struct FieldMessage {
    /// The index of its name in the field names of the callsite or operation.
    #[prost(uint32, tag = "1")]
    pub(super) index: u32,
    #[prost(oneof = "ValueMessage", tags = "2, 3, 4, 5, 6")]
    pub(super) value: Option<ValueMessage>,
}

#[derive(prost::Oneof)]
pub(super) enum ValueMessage {
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(sint64, tag = "3")]
    I64(i64),
    #[prost(uint64, tag = "4")]
    U64(u64),
    #[prost(double, tag = "5")]
    F64(f64),
    #[prost(string, tag = "6")]
    Str(String),
}

#[derive(Message)]
pub(super) struct TrackMessage {
    #[prost(uint64, tag = "1")]
    pub(super) thread: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(uint32, tag = "3")]
    pub(super) overlap: u32,
}

/// The start of an item in nanoseconds since the window opened, its duration, and its track.
#[derive(Clone, Copy, Message)]
pub(super) struct ExtentMessage {
    #[prost(uint64, tag = "1")]
    pub(super) start: u64,
    #[prost(uint64, tag = "2")]
    pub(super) nanos: u64,
    #[prost(uint32, tag = "3")]
    pub(super) track: u32,
}

#[derive(Message)]
pub(super) struct StepMessage {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) extent: Option<ExtentMessage>,
    #[prost(message, optional, tag = "3")]
    pub(super) cut: Option<CutMessage>,
}

#[derive(Clone, Copy, Message)]
pub(super) struct CutMessage {
    #[prost(bool, tag = "1")]
    pub(super) start: bool,
    #[prost(bool, tag = "2")]
    pub(super) end: bool,
}

#[derive(Message)]
pub(super) struct SpanMessage {
    #[prost(uint32, tag = "1")]
    pub(super) callsite: u32,
    #[prost(message, optional, tag = "2")]
    pub(super) extent: Option<ExtentMessage>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) parent: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub(super) step: Option<u32>,
    #[prost(uint64, tag = "5")]
    pub(super) self_nanos: u64,
    #[prost(message, optional, tag = "6")]
    pub(super) cut: Option<CutMessage>,
    #[prost(message, repeated, tag = "7")]
    pub(super) fields: Vec<FieldMessage>,
    #[prost(uint32, optional, tag = "8")]
    pub(super) previous: Option<u32>,
    /// One more than the caller, if that is not the parent; 0 if there is none.
    #[prost(uint32, optional, tag = "9")]
    pub(super) caller: Option<u32>,
}

/// The span that an item belongs to, and how the span is known.
#[derive(Clone, Copy, Message)]
pub(super) struct OwnerMessage {
    #[prost(uint32, optional, tag = "1")]
    pub(super) span: Option<u32>,
    /// Whether the item was handed off. If there is no span, its origin is from before the window.
    #[prost(bool, tag = "2")]
    pub(super) handed_off: bool,
}

#[derive(Message)]
pub(super) struct CallMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) extent: Option<ExtentMessage>,
    #[prost(uint32, tag = "2")]
    pub(super) api: u32,
    #[prost(uint32, tag = "3")]
    pub(super) function: u32,
    #[prost(string, tag = "4")]
    pub(super) name: String,
    #[prost(uint32, tag = "5")]
    pub(super) correlation: u32,
    #[prost(uint32, tag = "6")]
    pub(super) result: u32,
    #[prost(message, optional, tag = "7")]
    pub(super) owner: Option<OwnerMessage>,
    /// The number of its batch, from 1.
    #[prost(uint32, tag = "8")]
    pub(super) batch: u32,
}

/// An operation: its name and its fields.
#[derive(Message)]
pub(super) struct OperationMessage {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) field_names: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) fields: Vec<FieldMessage>,
}

/// A use of an operation.
#[derive(Message)]
pub(super) struct OperationCallMessage {
    #[prost(uint32, tag = "1")]
    pub(super) operation: u32,
    #[prost(message, optional, tag = "2")]
    pub(super) extent: Option<ExtentMessage>,
    #[prost(uint32, optional, tag = "3")]
    pub(super) step: Option<u32>,
    #[prost(message, optional, tag = "4")]
    pub(super) owner: Option<OwnerMessage>,
    /// The number of its batch, from 1.
    #[prost(uint32, tag = "5")]
    pub(super) batch: u32,
}

#[derive(Message)]
pub(super) struct AllocationMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) extent: Option<ExtentMessage>,
    #[prost(uint32, tag = "2")]
    pub(super) context: u32,
    #[prost(uint64, tag = "3")]
    pub(super) address: u64,
    #[prost(uint64, optional, tag = "4")]
    pub(super) bytes: Option<u64>,
    #[prost(bool, tag = "5")]
    pub(super) free: bool,
    #[prost(bool, tag = "6")]
    pub(super) pooled: bool,
    #[prost(message, optional, tag = "7")]
    pub(super) owner: Option<OwnerMessage>,
}

impl FieldMessage {
    pub(super) fn of(field: &FieldData) -> Self {
        let value = match &field.value {
            Value::Bool(value) => ValueMessage::Bool(*value),
            Value::I64(value) => ValueMessage::I64(*value),
            Value::U64(value) => ValueMessage::U64(*value),
            Value::F64(value) => ValueMessage::F64(*value),
            Value::Str(value) => ValueMessage::Str(value.to_string()),
        };
        Self { index: field.index, value: Some(value) }
    }

    /// Returns the field; `None` if the message has no value.
    pub(super) fn into_field(self) -> Option<FieldData> {
        let value = match self.value? {
            ValueMessage::Bool(value) => Value::Bool(value),
            ValueMessage::I64(value) => Value::I64(value),
            ValueMessage::U64(value) => Value::U64(value),
            ValueMessage::F64(value) => Value::F64(value),
            ValueMessage::Str(value) => Value::Str(value.into()),
        };
        Some(FieldData { index: self.index, value })
    }
}

impl OperationMessage {
    pub(super) fn of(operation: &Operation) -> Self {
        let (field_names, fields) = operation
            .fields()
            .iter()
            .enumerate()
            .map(|(index, (name, value))| {
                let field = FieldData { index: index as u32, value: value.clone() };
                (name.to_owned(), FieldMessage::of(&field))
            })
            .unzip();
        Self { name: operation.name().to_owned(), field_names, fields }
    }

    pub(super) fn into_operation(self) -> Operation {
        let fields = self.fields.into_iter().filter_map(FieldMessage::into_field).collect();
        Operation::of(self.name, self.field_names, fields)
    }
}

impl OwnerMessage {
    pub(super) fn of(span: Option<SpanId>, attribution: Attribution) -> Self {
        let handed_off = matches!(attribution, Attribution::HandedOff | Attribution::Before);
        Self { span: span.map(|span| span.index() as u32), handed_off }
    }

    pub(super) fn span_id(self) -> Option<SpanId> {
        self.span.map(|span| SpanId::new(span as usize))
    }

    pub(super) fn attribution(self) -> Attribution {
        match (self.span, self.handed_off) {
            (None, true) => Attribution::Before,
            (None, false) => Attribution::Unattributed,
            (Some(_), true) => Attribution::HandedOff,
            (Some(_), false) => Attribution::Direct,
        }
    }
}

impl CallsiteMessage {
    pub(super) fn into_callsite(self) -> CallsiteData {
        CallsiteData {
            name: Cow::Owned(self.name),
            target: Cow::Owned(self.target),
            level: Level::Info,
            file: self.file.map(Cow::Owned),
            line: self.line,
            fields: self.fields.into_iter().map(Cow::Owned).collect(),
            loads: LoadsData::default(),
        }
    }
}

impl DeviceMessage {
    pub(super) fn of(device: &Device) -> Self {
        let (major, minor) = device.compute_capability;
        Self {
            id: device.id.as_u32(),
            name: device.name.clone(),
            uuid: device.uuid.clone(),
            memory: device.memory,
            numbers: vec![
                major,
                minor,
                device.multiprocessors,
                device.warp_size,
                device.threads_per_block,
                device.threads_per_multiprocessor,
                device.blocks_per_multiprocessor,
                device.registers_per_block,
                device.registers_per_multiprocessor,
                device.shared_memory_per_block,
                device.shared_memory_per_block_optin,
                device.shared_memory_per_multiprocessor,
                device.shared_memory_reserved,
                device.clock_khz,
                device.memory_clock_khz,
                device.memory_bus_bits,
            ],
        }
    }

    pub(super) fn into_device(self) -> Device {
        let number = |index: usize| self.numbers.get(index).copied().unwrap_or(0);
        Device {
            id: DeviceId::new(self.id),
            compute_capability: (number(0), number(1)),
            multiprocessors: number(2),
            warp_size: number(3),
            threads_per_block: number(4),
            threads_per_multiprocessor: number(5),
            blocks_per_multiprocessor: number(6),
            registers_per_block: number(7),
            registers_per_multiprocessor: number(8),
            shared_memory_per_block: number(9),
            shared_memory_per_block_optin: number(10),
            shared_memory_per_multiprocessor: number(11),
            shared_memory_reserved: number(12),
            clock_khz: number(13),
            memory_clock_khz: number(14),
            memory_bus_bits: number(15),
            name: self.name,
            uuid: self.uuid,
            memory: self.memory,
        }
    }
}
