//! The names of steps in traces of PyTorch, in which each step is also a span.

use crate::trace::{Span, Trace};

/// Returns the name of the step that a span of a PyTorch trace is, if it is one.
///
/// The spans of all steps share the name `ProfilerStep*`, so that reports add them up.
pub(super) fn step_name(trace: &Trace, span: Span<'_>) -> Option<String> {
    if trace.torch().is_none() || span.name() != "ProfilerStep*" {
        return None;
    }
    let steps = trace.steps();
    let first = steps.partition_point(|step| step.start() < span.start());
    let together = steps[first..].iter().take_while(|step| step.start() == span.start());
    let step = together.into_iter().find(|step| step.end() == span.end())?;
    Some(format!("ProfilerStep#{}", step.number()))
}
