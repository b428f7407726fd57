//! Places in the program: the spans around one, and its line in the source.

use crate::trace::{Span, SpanId, Trace};

/// A place in the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The names of the spans around it, from the outside in.
    pub(super) path: Vec<String>,
    pub(super) location: Option<String>,
}

/// Returns the place of a span.
pub(super) fn of(trace: &Trace, span: Option<SpanId>) -> Place {
    let Some(span) = span.map(|id| trace.span(id)) else { return Place::default() };
    let mut path: Vec<String> = span.stack().map(|span| span.name().to_owned()).collect();
    path.reverse();
    Place { path, location: span.callsite().location() }
}

/// Names the place of a span in a sentence: `loss (train.rs:57)`, or `no span`.
pub(super) fn name(trace: &Trace, span: Option<SpanId>) -> String {
    let Some(span) = span.map(|id| trace.span(id)) else { return "no span".to_owned() };
    match location(span) {
        Some(location) => format!("`{}` ({location})", span.name()),
        None => format!("`{}`", span.name()),
    }
}

/// The file, without the folders around it, and the line.
fn location(span: Span<'_>) -> Option<String> {
    let location = span.callsite().location()?;
    Some(location.rsplit(['/', '\\']).next().unwrap_or(&location).to_owned())
}
