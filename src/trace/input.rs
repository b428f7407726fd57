//! Stages of the input pipeline.

use super::{Span, Value, convention};

/// A stage of the input pipeline, such as reading or preprocessing: see [`convention::INPUT`].
///
/// ```
/// use kernspan::{Collected, Profiler, trace::InputStage};
/// use tracing_subscriber::prelude::*;
///
/// let collected = Collected::new();
/// let (layer, profiler) = Profiler::builder().export(collected.clone()).build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     tracing::info_span!("decode", op.input = "preprocess").in_scope(|| ());
/// });
/// profiler.finish()?;
/// let trace = collected.only();
/// assert_eq!(trace.spans().next().unwrap().input_stage(), Some(InputStage::Preprocess));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum InputStage {
    /// The whole pipeline: the program waits for the next batch, however that is made.
    Load,
    /// Reads files or from the network.
    Read,
    /// Turns the data that was read into input of the model.
    Preprocess,
    /// Puts a batch where the device takes it from.
    Enqueue,
}

impl InputStage {
    /// The name of spans that are [`Load`](Self::Load) without the field `op.input`, as the integrations name theirs.
    pub const DATA: &'static str = "data";

    /// The value of the field `op.input`: `load`, `read`, `preprocess` or `enqueue`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Load => "load",
            Self::Read => "read",
            Self::Preprocess => "preprocess",
            Self::Enqueue => "enqueue",
        }
    }

    pub(super) fn of(span: Span<'_>) -> Option<Self> {
        match span.field(convention::INPUT).and_then(Value::as_str) {
            Some("read") => Some(Self::Read),
            Some("preprocess") => Some(Self::Preprocess),
            Some("enqueue") => Some(Self::Enqueue),
            Some("load") => Some(Self::Load),
            Some(_) => None,
            None => (span.name() == Self::DATA).then_some(Self::Load),
        }
    }
}
