//! Spans that a framework makes for its own operations, as opposed to those that the user wrote.

use crate::trace::{Span, SpanId, Trace};

/// Whether a span is an operation of the framework, or of its profiler, rather than code of the user.
///
/// Time in such a span is what the framework needs to issue work: nobody can move it to another thread.
pub(super) fn is_framework(span: Span<'_>) -> bool {
    match span.callsite().target() {
        // PyTorch's operators.
        "cpu_op" => true,
        "user_annotation" => span.name().starts_with("Optimizer.") || span.name().starts_with("ProfilerStep"),
        target => {
            let module = target.split("::").next().unwrap_or_default();
            matches!(module, "candle_core" | "candle_nn" | "candle_transformers" | "kernspan_candle" | "kernspan_burn")
                || module.starts_with("burn")
                || module.starts_with("cubecl")
        }
    }
}

/// Returns the innermost span around a span that the user wrote.
pub(super) fn owner(trace: &Trace, span: Option<SpanId>) -> Option<SpanId> {
    trace.span(span?).stack().find(|span| !is_framework(*span)).map(Span::id)
}
