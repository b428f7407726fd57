//! Flows from operators of the forward pass to those that compute their gradients.

use crate::trace::{Span, SpanId, Trace};

/// The flows of a PyTorch trace from forward to backward operators. A flow is identified by its number.
#[derive(Debug)]
pub(super) struct BackwardFlows<'a> {
    /// Where each flow begins and ends, in the order of their beginnings.
    links: &'a [(SpanId, SpanId)],
    /// Where each flow ends, in order, and its number.
    ends: Vec<(SpanId, usize)>,
}

impl<'a> BackwardFlows<'a> {
    /// The category of the flows in Kineto's format.
    pub(super) const CATEGORY: &'static str = "fwdbwd";

    pub(super) fn new(trace: &'a Trace) -> Self {
        let links = trace.torch().map_or(&[][..], |torch| &torch.links);
        let mut ends: Vec<_> = links.iter().enumerate().map(|(flow, &(_, to))| (to, flow)).collect();
        ends.sort_unstable();
        Self { links, ends }
    }

    /// Returns the flows that begin at a span.
    pub(super) fn from(&self, span: Span<'_>) -> impl Iterator<Item = usize> + use<> {
        let first = self.links.partition_point(|&(from, _)| from < span.id());
        first..first + self.links[first..].partition_point(|&(from, _)| from == span.id())
    }

    /// Returns the flows that end at a span.
    pub(super) fn to(&self, span: Span<'_>) -> impl Iterator<Item = usize> {
        let first = self.ends.partition_point(|&(to, _)| to < span.id());
        self.ends[first..].iter().take_while(move |(to, _)| *to == span.id()).map(|&(_, flow)| flow)
    }
}
