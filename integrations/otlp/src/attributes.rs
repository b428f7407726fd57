//! Attributes: their names, and how they are encoded.

use kernspan::export::wire;
use kernspan::trace::Value;

/// Names of attributes, from OpenTelemetry's semantic conventions where they define one.
pub(crate) mod name {
    pub(crate) const STEP: &str = "kernspan.step.number";
    pub(crate) const STEPS: &str = "kernspan.steps";
    pub(crate) const PHASE: &str = "kernspan.step.phase";
    pub(crate) const SCHEDULE: &str = "kernspan.schedule";
    pub(crate) const WINDOW: &str = "kernspan.window";
    pub(crate) const CUT: &str = "kernspan.cut";
    pub(crate) const RATE: &str = "kernspan.step.samples_per_second";
    pub(crate) const COUNTER: &str = "kernspan.counter.";
    pub(crate) const LOST: &str = "kernspan.lost";
    pub(crate) const DROPPED: &str = "kernspan.otlp.dropped_spans";
    pub(crate) const GPU: &str = "kernspan.gpu";
    pub(crate) const FOLDED: &str = "kernspan.folded";
    pub(crate) const SELF_TIME: &str = "kernspan.self_ns";
    pub(crate) const CPU_TIME: &str = "kernspan.cpu_ns";
    pub(crate) const TARGET: &str = "target";
    pub(crate) const LEVEL: &str = "level";
    pub(crate) const FILE: &str = "code.file.path";
    pub(crate) const LINE: &str = "code.line.number";
    pub(crate) const THREAD: &str = "thread.id";
    pub(crate) const THREAD_NAME: &str = "thread.name";
    pub(crate) const RANK: &str = "dl.rank";
    pub(crate) const HARDWARE: &str = "hw.id";

    pub(crate) const KERNELS: &str = "gpu.kernel.count";
    pub(crate) const TOP_KERNELS: &str = "gpu.kernel.top";
    pub(crate) const BUSY: &str = "gpu.busy_ns";
    pub(crate) const SELF_BUSY: &str = "gpu.self_busy_ns";
    pub(crate) const COPIES: &str = "gpu.copy.count";
    pub(crate) const COPIED: &str = "gpu.copy.bytes";
    pub(crate) const UNATTRIBUTED: &str = "gpu.unattributed.count";

    pub(crate) const GPU_START: &str = "gpu.start_ns";
    pub(crate) const GPU_DURATION: &str = "gpu.duration_ns";
    pub(crate) const ATTRIBUTION: &str = "gpu.attribution";
    pub(crate) const OPERATIONS: &str = "gpu.operations";
    pub(crate) const KERNEL: &str = "cuda.kernel.name";
    pub(crate) const DEVICE: &str = "cuda.device.index";
    pub(crate) const STREAM: &str = "cuda.stream.id";
    pub(crate) const CONTEXT: &str = "cuda.context.id";
    pub(crate) const CORRELATION: &str = "cuda.correlation_id";
    pub(crate) const GRID: &str = "cuda.grid";
    pub(crate) const BLOCK: &str = "cuda.block";
    pub(crate) const GRAPH: &str = "cuda.graph.id";
    pub(crate) const COPY_KIND: &str = "cuda.memcpy.kind";
    pub(crate) const COPY_BYTES: &str = "cuda.memcpy.bytes";
    pub(crate) const FILL_BYTES: &str = "cuda.memset.bytes";
}

/// Encodes attributes into a message, as its repeated field `field`.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    out: &'a mut Vec<u8>,
    field: u32,
}

impl<'a> Attributes<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, field: u32) -> Self {
        Self { out, field }
    }

    fn put(&mut self, name: &str, value: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        wire::message(self.out, self.field, |out| {
            wire::bytes(out, 1, name.as_bytes());
            wire::message(out, 2, value);
        });
        self
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) -> &mut Self {
        self.put(name, |out| wire::bytes(out, 1, text.as_bytes()))
    }

    pub(crate) fn boolean(&mut self, name: &str, value: bool) -> &mut Self {
        self.put(name, |out| wire::number(out, 2, value.into()))
    }

    /// Writes a number. One that is too large for `i64` becomes the largest.
    pub(crate) fn number(&mut self, name: &str, number: impl TryInto<i64>) -> &mut Self {
        let number = number.try_into().unwrap_or(i64::MAX);
        self.put(name, |out| wire::number(out, 3, number.cast_unsigned()))
    }

    pub(crate) fn float(&mut self, name: &str, value: f64) -> &mut Self {
        self.put(name, |out| wire::fixed64(out, 4, value.to_le_bytes()))
    }

    pub(crate) fn numbers(&mut self, name: &str, numbers: impl IntoIterator<Item = u32>) -> &mut Self {
        self.put(name, |out| {
            wire::message(out, 5, |out| {
                for number in numbers {
                    wire::message(out, 1, |out| wire::number(out, 3, number.into()));
                }
            });
        })
    }

    pub(crate) fn texts<T: AsRef<str>>(&mut self, name: &str, texts: impl IntoIterator<Item = T>) -> &mut Self {
        self.put(name, |out| {
            wire::message(out, 5, |out| {
                for text in texts {
                    wire::message(out, 1, |out| wire::bytes(out, 1, text.as_ref().as_bytes()));
                }
            });
        })
    }

    /// Writes the value of a field with its own type.
    pub(crate) fn value(&mut self, name: &str, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => self.boolean(name, *value),
            Value::I64(value) => self.number(name, *value),
            // OpenTelemetry has only signed numbers.
            Value::U64(value) if i64::try_from(*value).is_err() => self.text(name, &value.to_string()),
            Value::U64(value) => self.number(name, *value),
            Value::F64(value) => self.float(name, *value),
            Value::Str(text) => self.text(name, text),
            other => self.text(name, &other.to_string()),
        }
    }
}
