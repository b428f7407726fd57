//! Operations that frameworks report.

use super::{
    Attribution, BatchId, FieldData, Fields, Span, SpanId, Step, StepId, ThreadId, Timestamp, Trace, Track, TrackId,
    Value, id::define_id,
};
use std::{borrow::Cow, sync::Arc};

/// An operation that a program requests from a framework, such as a matrix product: a name, and fields named by
/// [`convention`](super::convention).
///
/// It is created once and reported each time the program requests it, with
/// [`HandOver::operation`](crate::framework::HandOver::operation). This is how a framework that defers operations and
/// runs several in one kernel says what the kernel did, and for which spans.
///
/// ```
/// use kernspan::{Collected, Profiler, trace::Operation};
/// use std::{sync::Arc, thread};
/// use tracing_subscriber::prelude::*;
///
/// let collected = Collected::new();
/// let (layer, profiler) = Profiler::builder().export(collected.clone()).build()?;
/// let matmul = Operation::new("matmul").with("op.flops", 1024_u64).with("op.shape.lhs", "[64, 512]");
/// let matmul = Arc::new(matmul);
///
/// let hand_over = profiler.hand_over();
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     let origin = tracing::info_span!("forward").in_scope(|| hand_over.origin());
///     thread::scope(|scope| {
///         scope.spawn(|| {
///             hand_over.adopt(origin.in_batch(1));
///             hand_over.operation(&matmul);
///             // Kernels launched in batch 1, here or on another thread, did `matmul`.
///         });
///     });
/// });
/// profiler.finish()?;
///
/// let trace = collected.only();
/// let operation = trace.operations().next().unwrap();
/// assert_eq!((operation.name(), operation.span().unwrap().name()), ("matmul", "forward"));
/// assert_eq!(operation.fields().op().flops(), Some(1024));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    name: Arc<str>,
    field_names: Vec<Cow<'static, str>>,
    fields: Vec<FieldData>,
}

impl Operation {
    /// Creates an operation with a name and no fields.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), field_names: Vec::new(), fields: Vec::new() }
    }

    /// Creates an operation of a recording. A field's index is that of its name in `field_names`.
    pub(crate) fn of(name: String, field_names: Vec<String>, fields: Vec<FieldData>) -> Self {
        let field_names = field_names.into_iter().map(Cow::Owned).collect();
        Self { name: name.into(), field_names, fields }
    }

    /// Adds a field, or replaces the value of a field of the same name: see [`convention`](super::convention). Text is
    /// truncated to [`Value::MAX_TEXT`] bytes.
    #[must_use]
    pub fn with(mut self, field: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        let (field, value) = (field.into(), value.into().cut());
        match self.field_names.iter().position(|name| *name == field) {
            Some(index) => self.fields[index].value = value,
            None => {
                let index = u32::try_from(self.fields.len()).unwrap_or(u32::MAX);
                self.field_names.push(field);
                self.fields.push(FieldData { index, value });
            }
        }
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.field_names, &self.fields)
    }

    /// The approximate size in memory, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let fields = self.field_names.iter().zip(&self.fields);
        let fields =
            fields.map(|(name, field)| name.len() + text(&field.value) + size_of::<(Cow<'_, str>, FieldData)>());
        size_of::<Self>() + self.name.len() + fields.sum::<usize>()
    }
}

define_id! {
    /// Names an [`Operation`] of one trace, which many of its [`OperationCall`]s may share.
    pub(crate) struct OperationId;

    /// The index of the operation in the trace's table of operations.
    pub(crate) fn index;
}

define_id! {
    /// Names an [`OperationCall`] of one trace.
    pub struct OperationCallId;

    /// The index of the operation in [`Trace::operations`].
    pub fn index;
}

/// The stored data of an [`OperationCall`].
#[derive(Clone, Debug)]
pub(crate) struct OperationCallData {
    pub(crate) operation: OperationId,
    pub(crate) track: TrackId,
    pub(crate) at: Timestamp,
    pub(crate) attribution: Attribution,
    pub(crate) span: Option<SpanId>,
    pub(crate) step: Option<StepId>,
    pub(crate) batch: Option<BatchId>,
}

/// One use of an [`Operation`]: one request to a framework.
#[derive(Clone, Copy, Debug)]
pub struct OperationCall<'a> {
    trace: &'a Trace,
    index: usize,
}

impl<'a> OperationCall<'a> {
    pub(super) fn new(trace: &'a Trace, index: usize) -> Self {
        Self { trace, index }
    }

    fn data(self) -> &'a OperationCallData {
        &self.trace.operation_calls[self.index]
    }

    /// The id, unique in the trace.
    pub fn id(self) -> OperationCallId {
        OperationCallId::new(self.index)
    }

    /// The operation requested.
    pub fn operation(self) -> &'a Operation {
        &self.trace.operations[self.operation_id().index()]
    }

    pub(crate) fn operation_id(self) -> OperationId {
        self.data().operation
    }

    /// The name of the operation.
    pub fn name(self) -> &'a str {
        self.operation().name()
    }

    /// The fields of the operation.
    pub fn fields(self) -> Fields<'a> {
        self.operation().fields()
    }

    /// When the framework reported it, which may be long after the program requested it.
    pub fn at(self) -> Timestamp {
        self.data().at
    }

    /// The thread that reported it.
    pub fn thread(self) -> ThreadId {
        self.track().thread()
    }

    /// The track of the thread that reported it.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data().track)
    }

    /// The id of the track of the thread that reported it.
    pub fn track_id(self) -> TrackId {
        self.data().track
    }

    /// How its span was found.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    /// The span it belongs to: the innermost one open where and when the program requested it.
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }

    /// The step in which the program requested it.
    pub fn step(self) -> Option<&'a Step> {
        self.step_id().map(|id| &self.trace.steps[id.index()])
    }

    /// The id of that step.
    pub fn step_id(self) -> Option<StepId> {
        self.data().step
    }

    pub(crate) fn batch_id(self) -> Option<BatchId> {
        self.data().batch
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, Value};

    #[test]
    fn an_operation_has_each_field_once() {
        let matmul = Operation::new("matmul").with("op.flops", 1_u64).with("op.shape.lhs", "[8, 4]");
        let matmul = matmul.with("op.flops", 64_u64).with(String::from("op.dtype.lhs"), "f32").with("exact", true);
        let fields: Vec<_> = matmul.fields().iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(fields, ["op.flops=64", "op.shape.lhs=[8, 4]", "op.dtype.lhs=f32", "exact=true"]);
        assert_eq!(matmul.fields().op().shapes().collect::<Vec<_>>(), [("lhs", "[8, 4]")]);
    }

    #[test]
    fn long_text_is_cut() {
        let long = Operation::new("long").with("text", "é".repeat(Value::MAX_TEXT));
        let text = long.fields().get("text").and_then(Value::as_str).unwrap();
        assert!(text.ends_with("é…") && text.len() <= Value::MAX_TEXT + '…'.len_utf8(), "{}", text.len());
        assert!(long.bytes() > Value::MAX_TEXT);
    }
}
