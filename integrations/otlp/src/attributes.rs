//! Attributes on the wire, and what ours are called.

use super::super::wire;
use crate::trace::Value;

/// What attributes are called. Where OpenTelemetry's conventions have a name, it is theirs.
pub(super) mod name {
    pub(in super::super) const STEP: &str = "kernspan.step.number";
    pub(in super::super) const STEPS: &str = "kernspan.steps";
    pub(in super::super) const PHASE: &str = "kernspan.step.phase";
    pub(in super::super) const SCHEDULE: &str = "kernspan.schedule";
    pub(in super::super) const WINDOW: &str = "kernspan.window";
    pub(in super::super) const CUT: &str = "kernspan.cut";
    pub(in super::super) const RATE: &str = "kernspan.step.samples_per_second";
    pub(in super::super) const COUNTER: &str = "kernspan.counter.";
    pub(in super::super) const LOST: &str = "kernspan.lost";
    pub(in super::super) const DROPPED: &str = "kernspan.otlp.dropped_spans";
    pub(in super::super) const GPU: &str = "kernspan.gpu";
    pub(in super::super) const FOLDED: &str = "kernspan.folded";
    pub(in super::super) const SELF_TIME: &str = "kernspan.self_ns";
    pub(in super::super) const TARGET: &str = "target";
    pub(in super::super) const LEVEL: &str = "level";
    pub(in super::super) const FILE: &str = "code.file.path";
    pub(in super::super) const LINE: &str = "code.line.number";
    pub(in super::super) const THREAD: &str = "thread.id";
    pub(in super::super) const THREAD_NAME: &str = "thread.name";
    pub(in super::super) const RANK: &str = "dl.rank";
    pub(in super::super) const HARDWARE: &str = "hw.id";

    pub(in super::super) const KERNELS: &str = "gpu.kernel.count";
    pub(in super::super) const TOP_KERNELS: &str = "gpu.kernel.top";
    pub(in super::super) const BUSY: &str = "gpu.busy_ns";
    pub(in super::super) const SELF_BUSY: &str = "gpu.self_busy_ns";
    pub(in super::super) const COPIES: &str = "gpu.copy.count";
    pub(in super::super) const COPIED: &str = "gpu.copy.bytes";
    pub(in super::super) const UNATTRIBUTED: &str = "gpu.unattributed.count";

    pub(in super::super) const GPU_START: &str = "gpu.start_ns";
    pub(in super::super) const GPU_DURATION: &str = "gpu.duration_ns";
    pub(in super::super) const ATTRIBUTION: &str = "gpu.attribution";
    pub(in super::super) const OPERATIONS: &str = "gpu.operations";
    pub(in super::super) const KERNEL: &str = "cuda.kernel.name";
    pub(in super::super) const DEVICE: &str = "cuda.device.index";
    pub(in super::super) const STREAM: &str = "cuda.stream.id";
    pub(in super::super) const CONTEXT: &str = "cuda.context.id";
    pub(in super::super) const CORRELATION: &str = "cuda.correlation_id";
    pub(in super::super) const GRID: &str = "cuda.grid";
    pub(in super::super) const BLOCK: &str = "cuda.block";
    pub(in super::super) const GRAPH: &str = "cuda.graph.id";
    pub(in super::super) const COPY_KIND: &str = "cuda.memcpy.kind";
    pub(in super::super) const COPY_BYTES: &str = "cuda.memcpy.bytes";
    pub(in super::super) const FILL_BYTES: &str = "cuda.memset.bytes";
}

/// Writes attributes into a message, whose field they are.
#[derive(Debug)]
pub(super) struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    field: u32,
}

impl<'a> Attributes<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>, field: u32) -> Self {
        Self { out, field }
    }

    fn put(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, value);
        });
        self
    }

    pub(super) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.put(name, |out| wire::bytes(out, 1, text.as_bytes()))
    }

    pub(super) fn boolean(&mut self, name: &str, value: bool) -> &mut Self {
        self.put(name, |out| wire::number(out, 2, value.into()))
    }

    /// A number that is not negative; what is too large for a signed one is the largest.
    pub(super) fn number(&mut self, name: &str, number: impl TryInto<i64>) -> &mut Self {
        let number = number.try_into().unwrap_or(i64::MAX);
        self.put(name, |out| wire::number(out, 3, number.cast_unsigned()))
    }

    pub(super) fn float(&mut self, name: &str, value: f64) -> &mut Self {
        self.put(name, |out| wire::fixed64(out, 4, value.to_le_bytes()))
    }

    pub(super) fn numbers(&mut self, name: &str, numbers: impl IntoIterator<Item = u32>) -> &mut Self {
        self.put(name, |out| {
            wire::message(out, 5, |out| {
                for number in numbers {
                    wire::message(out, 1, |out| wire::number(out, 3, number.into()));
                }
            });
        })
    }

    pub(super) fn texts<T: AsRef<str>>(&mut self, name: &str, texts: impl IntoIterator<Item = T>) -> &mut Self {
        self.put(name, |out| {
            wire::message(out, 5, |out| {
                for text in texts {
                    wire::message(out, 1, |out| wire::bytes(out, 1, text.as_ref().as_bytes()));
                }
            });
        })
    }

    /// A field, with the type it was recorded with.
    pub(super) fn value(&mut self, name: &str, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => self.boolean(name, *value),
            Value::I64(value) => self.number(name, *value),
            // OpenTelemetry has no unsigned numbers.
            Value::U64(value) if i64::try_from(*value).is_err() => self.text(name, &value.to_string()),
            Value::U64(value) => self.number(name, *value),
            Value::F64(value) => self.float(name, *value),
            Value::Str(text) => self.text(name, text),
        }
    }
}
