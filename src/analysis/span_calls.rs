//! The calls of a trace: enters of one span that belong together.

use crate::trace::{Span, SpanId, Trace};

/// The call that each enter of a span belongs to.
#[derive(Debug)]
pub(crate) struct SpanCalls {
    /// The first enter of the call, for each span.
    firsts: Vec<SpanId>,
    /// Whether the call of this first enter has more than one enter.
    reentered: Vec<bool>,
    /// Whether an enter of the call of this first enter is cut by the edge of the window.
    cut: Vec<bool>,
}

impl SpanCalls {
    pub(crate) fn of(trace: &Trace) -> Self {
        let count = trace.spans().len();
        let mut firsts: Vec<Option<SpanId>> = vec![None; count];
        let mut reentered = vec![false; count];
        let mut cut = vec![false; count];
        let mut chain = Vec::new();
        for span in trace.spans() {
            // An enter may come before the previous one in the list, if they are on different threads.
            let mut enter = span;
            let first = loop {
                if let Some(first) = firsts[enter.id().index()] {
                    break first;
                }
                chain.push(enter.id());
                match enter.previous() {
                    Some(previous) => enter = previous,
                    None => break enter.id(),
                }
            };
            reentered[first.index()] |= span.id() != first;
            cut[first.index()] |= span.cut().any();
            chain.drain(..).for_each(|enter| firsts[enter.index()] = Some(first));
        }
        let firsts = firsts.into_iter().enumerate().map(|(index, first)| first.unwrap_or(SpanId::new(index)));
        Self { firsts: firsts.collect(), reentered, cut }
    }

    /// Returns the first enter of the call that this one belongs to.
    pub(crate) fn first(&self, span: SpanId) -> SpanId {
        self.firsts[span.index()]
    }

    /// Returns whether the call of this enter has others.
    pub(crate) fn is_reentered(&self, span: SpanId) -> bool {
        self.reentered[self.first(span).index()]
    }

    /// Returns whether the call of this enter is cut by the edge of the window, so that it took longer than is known.
    pub(crate) fn is_cut(&self, span: SpanId) -> bool {
        self.cut[self.first(span).index()]
    }

    /// Returns whether this enter is nested in another one of the same call.
    pub(crate) fn is_nested(&self, span: Span<'_>) -> bool {
        self.is_reentered(span.id())
            && span.stack().skip(1).any(|outer| self.first(outer.id()) == self.first(span.id()))
    }
}
