//! The words of findings: places in the program, by the spans that the user wrote, and numbers.

pub(super) use crate::units::{bytes, time};

use super::{
    super::counter_use::{CounterBound, CounterSubject},
    window::Window,
};
use crate::{
    trace::{Span, SpanId, Trace, Value, convention},
    units,
};
use std::time::Duration;

/// A place in the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The names of the spans around it, from the outside in.
    pub(super) path: Vec<String>,
    pub(super) location: Option<String>,
}

/// The most names of a path, the innermost ones: deep recursion has thousands, of which each finding keeps a copy.
const DEPTH: usize = 200;

impl Place {
    /// Returns the place of a span.
    pub(super) fn of(trace: &Trace, span: Option<SpanId>) -> Self {
        let Some(span) = span.map(|id| trace.span(id)) else { return Self::default() };
        let depth = span.stack().count();
        let mut path: Vec<String> = span.stack().take(DEPTH).map(|span| span.name().to_owned()).collect();
        if depth > DEPTH {
            path.push(format!("[{} more]", depth - DEPTH));
        }
        path.reverse();
        Self { path, location: source(span) }
    }
}

/// Names the place of a span in a sentence: `loss (train.rs:57)`, or `no span`.
pub(super) fn place(trace: &Trace, span: Option<SpanId>) -> String {
    let Some(span) = span.map(|id| trace.span(id)) else { return "no span".to_owned() };
    match location(span) {
        Some(location) => format!("`{}` ({location})", span.name()),
        None => format!("`{}`", span.name()),
    }
}

/// Says what hardware counters measured while the GPU worked for a span, and what that means, if they were sampled and
/// determine it.
pub(super) fn counters(window: &Window<'_>, span: Option<SpanId>) -> Option<String> {
    let name = window.trace().span(span?).name();
    let [sm, tensor, dram] = window.busy_parts(&CounterSubject::Span(name.to_owned()))?;
    Some(format!(
        "Hardware counters while the GPU worked for `{name}`: SMs {}, tensor cores {}, memory bandwidth {}; {}.",
        units::percent(sm),
        units::percent(tensor),
        units::percent(dram),
        CounterBound::of(sm, tensor, dram).meaning()
    ))
}

/// The place in the program's own source that a span stands for, as `file:line`: that of the span around one of
/// kernspan's integrations, which nobody can change.
fn source(span: Span<'_>) -> Option<String> {
    let is_users = |span: &Span<'_>| {
        let module = span.callsite().target().split("::").next().unwrap_or_default();
        !matches!(module, "kernspan_candle" | "kernspan_burn")
    };
    let said = span.field(convention::LOCATION).and_then(Value::as_str).map(str::to_owned);
    said.or_else(|| span.stack().find(is_users)?.callsite().location())
}

/// The file, without the folders around it, and the line.
fn location(span: Span<'_>) -> Option<String> {
    let location = source(span)?;
    Some(location.rsplit(['/', '\\']).next().unwrap_or(&location).to_owned())
}

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

/// Nanoseconds as a time: `3.90 ms`.
pub(super) fn nanos(nanos: u64) -> String {
    time(Duration::from_nanos(nanos))
}

/// How often something happens in a step: `3 times`, `once`, `0.2 times`.
pub(super) fn times(count: usize, steps: usize) -> String {
    match count as f64 / steps.max(1) as f64 {
        1.0 => "once".to_owned(),
        2.0 => "twice".to_owned(),
        rate => format!("{} times", digits(rate)),
    }
}

/// A number with about three digits, and none that say nothing.
pub(super) fn digits(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 && value < 1e6 => format!("{value}"),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Place;
    use crate::trace::{
        SpanId,
        sample::{set_parent, spans_trace},
    };

    #[test]
    fn a_place_deep_in_recursion_has_a_short_path() {
        let mut trace = spans_trace(&[("recurse", None, 0, 9); 1_000]);
        (1..1_000).for_each(|span| set_parent(&mut trace, span, span - 1));
        assert_eq!(Place::of(&trace, Some(SpanId::new(4))).path, ["recurse"; 5]);
        let path = Place::of(&trace, Some(SpanId::new(999))).path;
        assert_eq!((path.len(), path[0].as_str()), (201, "[800 more]"));
    }
}
