//! Places in the program: the spans around one, and its line in the source.

use crate::trace::{Span, SpanId, Trace};

/// A place in the program.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// The names of the spans around it, from the outside in.
    pub(super) path: Vec<String>,
    pub(super) location: Option<String>,
}

/// The most names of a path, the innermost ones: deep recursion has thousands, of which each finding keeps a copy.
const DEPTH: usize = 200;

/// Returns the place of a span.
pub(super) fn of(trace: &Trace, span: Option<SpanId>) -> Place {
    let Some(span) = span.map(|id| trace.span(id)) else { return Place::default() };
    let depth = span.stack().count();
    let mut path: Vec<String> = span.stack().take(DEPTH).map(|span| span.name().to_owned()).collect();
    if depth > DEPTH {
        path.push(format!("[{} more]", depth - DEPTH));
    }
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

#[cfg(test)]
mod tests {
    use super::of;
    use crate::trace::{
        SpanId,
        sample::{set_parent, spans_trace},
    };

    #[test]
    fn a_place_deep_in_recursion_has_a_short_path() {
        let mut trace = spans_trace(&[("recurse", None, 0, 9); 1_000]);
        (1..1_000).for_each(|span| set_parent(&mut trace, span, span - 1));
        assert_eq!(of(&trace, Some(SpanId::new(4))).path, ["recurse"; 5]);
        let path = of(&trace, Some(SpanId::new(999))).path;
        assert_eq!((path.len(), path[0].as_str()), (201, "[800 more]"));
    }
}
