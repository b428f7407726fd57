//! NCCL collectives, for the plugin's Distributed view.

use crate::{
    export::{chrome::flavor::Flavor, flows::Flows, gpu_ranges::Cause},
    trace::{ApiCall, ApiCallId, Attribution, Detail, Trace, WorkId},
};
use rustc_hash::FxHashMap;

/// The calls that launch only a collective.
#[derive(Debug, Default)]
pub(in super::super) struct Collectives(FxHashMap<ApiCallId, Collective>);

/// The op of a collective. It encloses the call that launches the collective.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Collective {
    pub(in super::super) name: &'static str,
    /// The op's `External id`.
    pub(in super::super) id: usize,
}

impl Collectives {
    /// Finds the collectives of a trace. There are none in other flavors.
    pub(in super::super) fn new(trace: &Trace, flows: &Flows, flavor: Flavor) -> Self {
        if flavor != Flavor::TorchTensorBoard {
            return Self::default();
        }
        let launched = |call: ApiCall<'_>| {
            let name = |work: &WorkId| {
                let Detail::Kernel(kernel) = &trace.work[work.index()].detail else { return None };
                collective(&kernel.name)
            };
            let (first, others) = flows.of_call(call.id()).split_first()?;
            let first = name(first)?;
            (others.iter().all(|work| name(work) == Some(first)) && nests(call)).then_some(first)
        };
        // The ids after those of spans.
        let first = trace.spans().len() + 1;
        let named = trace.api_calls().filter_map(|call| Some((call.id(), launched(call)?)));
        Self(named.zip(first..).map(|((call, name), id)| (call, Collective { name, id })).collect())
    }

    /// Returns the collective that a call launches, if it launches one.
    #[inline]
    pub(in super::super) fn get(&self, call: ApiCallId) -> Option<Collective> {
        self.0.get(&call).copied()
    }
}

/// Returns whether an op around the call nests in the span that the call belongs to, and that span is not such an op
/// itself.
fn nests(call: ApiCall<'_>) -> bool {
    call.attribution() != Attribution::HandedOff && call.span().is_none_or(|span| !is_collective(span.name()))
}

/// Returns whether the plugin takes a span of this name for a collective.
pub(super) fn is_collective(name: &str) -> bool {
    name.starts_with("nccl:") || name.starts_with("gloo:")
}

/// Returns PyTorch's name for the collective that an NCCL kernel performs.
pub(super) fn collective(kernel: &str) -> Option<&'static str> {
    let prefixes = ["ncclDevKernel_", "ncclKernel_", "ncclSymDevKernel_", "ncclSymkDevKernel_"];
    let rest = prefixes.iter().find_map(|prefix| kernel.strip_prefix(prefix))?;
    Some(match rest.split(['_', '(']).next()? {
        "AllReduce" => "nccl:all_reduce",
        "AllGather" => "nccl:all_gather",
        "ReduceScatter" => "nccl:reduce_scatter",
        "Reduce" => "nccl:reduce",
        "Broadcast" => "nccl:broadcast",
        // One kernel does both.
        "SendRecv" => "nccl:send_recv",
        _ => return None,
    })
}

/// Returns whether the plugin would take a range on the GPU for a host op.
pub(in super::super) fn is_op_on_gpu(trace: &Trace, cause: Cause) -> bool {
    let is_op = |name: &str| is_collective(name) || name.starts_with("ProfilerStep#");
    match cause {
        Cause::Step(_) => true,
        Cause::Span(span) => is_op(trace.span(span).name()),
        Cause::Annotation(index) => trace.torch().is_none_or(|torch| is_op(&torch.gpu_annotations[index].name)),
    }
}
