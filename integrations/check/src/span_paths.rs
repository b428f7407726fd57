//! The paths of spans: their names from the outside in.

use kernspan::trace::{Span, Trace};
use std::{borrow::Cow, collections::HashMap};

/// The paths of the spans of a window, a parent before its children.
#[derive(Debug, Default)]
pub(crate) struct SpanPaths {
    pub(crate) list: Vec<SpanPath>,
    /// The path of each span.
    pub(crate) of_span: Vec<Option<usize>>,
    /// More than 0 if spans have no path of their own because there were too many.
    pub(crate) left_out: u64,
}

/// The path of a span: its own name, and the path it is called from.
#[derive(Debug)]
pub(crate) struct SpanPath {
    pub(crate) parent: Option<usize>,
    pub(crate) name: String,
    pub(crate) target: String,
    /// `file:line`, if known.
    pub(crate) location: Option<String>,
    /// The number of names.
    depth: u32,
}

impl SpanPaths {
    /// The maximum number of distinct paths. Spans of later ones count towards the span they are called from.
    ///
    /// A transformer of 48 layers with 10 spans each has about 500. Each path takes up to 128 steps of 5 times in a
    /// baseline, so this limit also bounds the size of its file.
    pub(crate) const PATHS: usize = 1_000;
    /// The maximum number of names in a path, so that recursion does not use up all paths. More deeply nested spans
    /// count towards the one at this depth.
    const DEPTH: u32 = 64;

    pub(crate) fn of(trace: &Trace) -> Self {
        let mut paths = Self { of_span: vec![None; trace.spans().len()], ..Self::default() };
        let mut by_name = HashMap::new();
        let mut is_known = vec![false; trace.spans().len()];
        let mut chain = Vec::new();
        for span in trace.spans() {
            // Outer spans first. On another thread, they come later in the list.
            let mut next = Some(span);
            while let Some(span) = next.filter(|span| !is_known[span.id().index()]) {
                is_known[span.id().index()] = true;
                chain.push(span);
                next = outer(span);
            }
            while let Some(span) = chain.pop() {
                let parent = outer(span).and_then(|outer| paths.of_span[outer.id().index()]);
                paths.of_span[span.id().index()] = paths.path(parent, span, &mut by_name);
            }
        }
        paths
    }

    /// Returns the path of a span, or that of its parent if there is no room for another.
    fn path<'a>(
        &mut self,
        parent: Option<usize>,
        span: Span<'a>,
        by_name: &mut HashMap<(Option<usize>, Cow<'a, str>), usize>,
    ) -> Option<usize> {
        let name = match span.fields().op().module() {
            Some(module) if module != span.name() => Cow::Owned(format!("{} ({module})", span.name())),
            _ => Cow::Borrowed(span.name()),
        };
        let key = (parent, name);
        if let Some(&path) = by_name.get(&key) {
            return Some(path);
        }
        let depth = parent.map_or(1, |parent| self.list[parent].depth + 1);
        if self.list.len() >= Self::PATHS || depth > Self::DEPTH {
            self.left_out = self.left_out.saturating_add(1);
            return parent;
        }
        let (target, location) = (span.callsite().target().to_owned(), span.callsite().location());
        self.list.push(SpanPath { parent, name: key.1.clone().into_owned(), target, location, depth });
        by_name.insert(key, self.list.len() - 1);
        Some(self.list.len() - 1)
    }
}

/// Returns the span that another one is called from. Its caller counts only on another thread: the span of a layer,
/// which is created once and entered repeatedly, has no caller, or one that ended long ago.
fn outer(span: Span<'_>) -> Option<Span<'_>> {
    span.parent().or_else(|| span.caller())
}
