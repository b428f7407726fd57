use super::{
    Attribution, BatchId, FieldData, Fields, Span, SpanId, Step, StepId, ThreadId, Timestamp, Trace, Track, TrackId,
    Value,
};
use std::{borrow::Cow, sync::Arc};

/// What a framework is asked to do: a name, and fields by [`convention`](crate::trace::convention).
///
/// Made once, and told of each time it is asked for: see [`HandOver::operation`](crate::framework::HandOver::operation). Frameworks that put
/// operations aside and run several in one kernel so say what the kernel did, and for which spans.
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
    /// An operation of this name that says no more.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), field_names: Vec::new(), fields: Vec::new() }
    }

    /// One that was written down: the fields' places are those of their names.
    pub(crate) fn of(name: String, field_names: Vec<String>, fields: Vec<FieldData>) -> Self {
        let field_names = field_names.into_iter().map(Cow::Owned).collect();
        Self { name: name.into(), field_names, fields }
    }

    /// Says one thing more, or another instead of what was said before: see [`convention`](crate::trace::convention). Text is cut after
    /// [`Value::MAX_TEXT`] bytes.
    #[must_use]
    pub fn with(mut self, field: impl Into<Cow<'static, str>>, value: impl Into<Value>) -> Self {
        let (field, value) = (field.into(), value.into().cut());
        match self.field_names.iter().position(|known| *known == field) {
            Some(place) => self.fields[place].value = value,
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

    /// What else it says.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.field_names, &self.fields)
    }

    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let text = |value: &Value| value.as_str().map_or(0, str::len);
        let fields = self.field_names.iter().zip(&self.fields);
        let fields =
            fields.map(|(name, field)| name.len() + text(&field.value) + size_of::<(Cow<'_, str>, FieldData)>());
        size_of::<Self>() + self.name.len() + fields.sum::<usize>()
    }
}

/// Names what an operation says, which many of a trace may have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperationId(u32);

impl OperationId {
    pub(crate) fn new(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Names an [`OperationCall`] of one trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationCallId(u32);

impl OperationCallId {
    pub(crate) fn new(index: usize) -> Self {
        // The memory limit keeps a window far below this many.
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }

    /// The place of the operation in [`Trace::operations`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

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

/// An [`Operation`] that a framework was asked for once.
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

    /// What was asked for.
    pub fn operation(self) -> &'a Operation {
        &self.trace.operations[self.operation_id().index()]
    }

    pub(crate) fn operation_id(self) -> OperationId {
        self.data().operation
    }

    /// The name of what was asked for.
    pub fn name(self) -> &'a str {
        self.operation().name()
    }

    /// What else it says.
    pub fn fields(self) -> Fields<'a> {
        self.operation().fields()
    }

    /// When the framework told of it. That may be long after it was asked for.
    pub fn at(self) -> Timestamp {
        self.data().at
    }

    /// The thread that told of it.
    pub fn thread(self) -> ThreadId {
        self.track().thread()
    }

    /// The track of the thread that told of it.
    pub fn track(self) -> &'a Track {
        self.trace.track(self.data().track)
    }

    /// The id of the track of the thread that told of it.
    pub fn track_id(self) -> TrackId {
        self.data().track
    }

    /// How it is known which span it belongs to.
    pub fn attribution(self) -> Attribution {
        self.data().attribution
    }

    /// The span it belongs to: the innermost one open where and when it was asked for.
    pub fn span(self) -> Option<Span<'a>> {
        self.data().span.map(|id| self.trace.span(id))
    }

    /// The step it was asked for in.
    pub fn step(self) -> Option<&'a Step> {
        self.step_id().map(|id| &self.trace.steps[id.index()])
    }

    pub(crate) fn step_id(self) -> Option<StepId> {
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
    fn an_operation_says_each_thing_once() {
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
