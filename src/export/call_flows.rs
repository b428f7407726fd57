//! Flows between the enters of one call, such as from each poll of a future to the next.

use crate::trace::{Span, SpanId, Trace};

/// The flows between the enters of each call. A flow is identified by the enter at which it begins.
#[derive(Debug)]
pub(super) struct CallFlows {
    /// Whether a flow begins at each span.
    begins: Vec<bool>,
}

impl CallFlows {
    /// The category of the flows, in formats that have one.
    pub(super) const CATEGORY: &str = "call";

    pub(super) fn new(trace: &Trace) -> Self {
        let mut begins = vec![false; trace.spans().len()];
        trace.spans().filter_map(Span::previous).for_each(|previous| begins[previous.id().index()] = true);
        Self { begins }
    }

    /// Returns the flow that begins at this enter, if the call has another enter after it.
    pub(super) fn from(&self, span: Span<'_>) -> Option<SpanId> {
        self.begins[span.id().index()].then(|| span.id())
    }

    /// Returns the flow that ends at this enter, if it is not the first of its call.
    pub(super) fn to(&self, span: Span<'_>) -> Option<SpanId> {
        span.previous().map(Span::id)
    }
}
