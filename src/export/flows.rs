//! Flows, which viewers draw as arrows: from API calls to the GPU work they caused, between the enters of one call,
//! from causes to what follows from them, and from operators of the forward pass to those of the backward pass.

use crate::trace::{ApiCall, ApiCallId, Span, SpanId, Trace, Work, WorkId};
use std::borrow::Cow;

/// The flows from API calls to the GPU work they caused.
#[derive(Debug)]
pub(super) struct LaunchFlows {
    /// The call at which the flow to each piece of work begins.
    sources: Vec<Option<ApiCallId>>,
    /// For each call, the index in `targets` at which its work begins. One more entry marks the end of the last call's.
    starts: Vec<u32>,
    /// The work that flows lead to, call by call.
    targets: Vec<WorkId>,
}

impl LaunchFlows {
    /// The category of the flows in Kineto's format.
    pub(super) const CATEGORY: &str = "ac2g";

    pub(super) fn new(trace: &Trace) -> Self {
        let sources: Vec<_> = trace.work().map(source).collect();
        // A counting sort: one entry for each call, one for the end, and one to count in.
        let mut starts = vec![0_u32; trace.api_calls().len() + 2];
        for call in sources.iter().flatten() {
            starts[call.index() + 2] += 1;
        }
        for call in 1..starts.len() {
            starts[call] += starts[call - 1];
        }
        let mut targets = vec![WorkId::new(0); starts.last().map_or(0, |count| *count as usize)];
        for (work, call) in sources.iter().enumerate() {
            if let Some(call) = call {
                let next = &mut starts[call.index() + 1];
                targets[*next as usize] = WorkId::new(work);
                *next += 1;
            }
        }
        Self { sources, starts, targets }
    }

    /// Returns the work that the flows of a call lead to.
    pub(super) fn of_call(&self, call: ApiCallId) -> &[WorkId] {
        &self.targets[self.starts[call.index()] as usize..self.starts[call.index() + 1] as usize]
    }

    /// Returns whether a flow leads to this work.
    pub(super) fn leads_to(&self, work: WorkId) -> bool {
        self.sources[work.index()].is_some()
    }
}

/// Returns the call at which the flow to this work begins. No reader accepts a flow that goes back in time.
fn source(work: Work<'_>) -> Option<ApiCallId> {
    work.call().filter(|call| call.start() <= work.start()).map(ApiCall::id)
}

/// The flows between spans that a trace links: in PyTorch's, from forward to backward operators; in ours, from causes
/// to the calls that follow from them. A flow is identified by its number.
#[derive(Debug)]
pub(super) struct SpanFlows<'a> {
    /// The category of the flows in Kineto's format.
    pub(super) category: &'static str,
    /// Where each flow begins and ends, in the order of their beginnings.
    links: Cow<'a, [(SpanId, SpanId)]>,
    /// Where each flow ends, in order, and its number.
    ends: Vec<(SpanId, usize)>,
}

impl<'a> SpanFlows<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let (category, links) = match trace.torch() {
            Some(torch) => ("fwdbwd", Cow::Borrowed(&torch.links[..])),
            None => ("follows_from", Cow::Owned(causes(trace))),
        };
        let mut ends: Vec<_> = links.iter().enumerate().map(|(flow, &(_, to))| (to, flow)).collect();
        ends.sort_unstable();
        Self { category, links, ends }
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

/// Returns the causes of calls, with these. No reader accepts a flow that goes back in time.
fn causes(trace: &Trace) -> Vec<(SpanId, SpanId)> {
    let start = |span: SpanId| trace.spans[span.index()].start;
    let follows = trace.follows.iter();
    let mut links: Vec<_> =
        follows.flat_map(|(&span, causes)| causes.iter().map(move |&cause| (cause, span))).collect();
    links.retain(|&(cause, span)| start(cause) <= start(span));
    links.sort_unstable();
    links
}

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

#[cfg(test)]
mod tests {
    use super::{LaunchFlows, SpanFlows};
    use crate::trace::{
        SpanId,
        sample::{at, gpu_trace, set_follows},
    };

    #[test]
    fn causes_lead_to_what_follows_and_never_back_in_time() {
        let mut trace = gpu_trace();
        set_follows(&mut trace, 2, &[0, 1, 5]);
        set_follows(&mut trace, 4, &[1]);
        let flows = SpanFlows::new(&trace);
        let ends = |span: usize| -> Vec<SpanId> {
            let span = trace.spans().nth(span).unwrap();
            flows
                .from(span)
                .map(|flow| trace.spans().find(|to| flows.to(*to).any(|it| it == flow)).unwrap().id())
                .collect()
        };
        let ids = |spans: &[usize]| spans.iter().map(|span| SpanId::new(*span)).collect::<Vec<_>>();
        assert_eq!([ends(0), ends(1), ends(5)], [ids(&[2]), ids(&[2, 4]), ids(&[])]);
    }

    #[test]
    fn each_call_leads_to_its_work_and_never_back_in_time() {
        let mut trace = gpu_trace();
        let late = trace.api_calls().find(|call| call.name() == "cuLaunchKernel").unwrap().id();
        trace.api_calls[late.index()].start = at(21);
        let flows = LaunchFlows::new(&trace);
        for call in trace.api_calls() {
            let work = flows.of_call(call.id());
            let expected = match call.name() {
                _ if call.id() == late => 0,
                "cuGraphLaunch" => 2,
                _ => 1,
            };
            assert_eq!(work.len(), expected, "{call:?}");
            assert!(work.iter().all(|work| trace.work[work.index()].correlation == call.correlation()));
        }
    }
}
