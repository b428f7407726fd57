//! Arrows from calls to the work that they caused.

use crate::trace::{ApiCall, ApiCallId, Trace, Work, WorkId};

/// The work that each call's arrows lead to.
#[derive(Debug)]
pub(super) struct Flows {
    /// Where the work of each call begins, and where that of the last ends.
    first: Vec<usize>,
    work: Vec<WorkId>,
}

impl Flows {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut first = vec![0; trace.api_calls().len() + 1];
        for call in trace.work().filter_map(cause) {
            first[call.id().index() + 1] += 1;
        }
        for call in 1..first.len() {
            first[call] += first[call - 1];
        }
        let mut next = first.clone();
        let mut to = vec![WorkId::new(0); first.last().copied().unwrap_or(0)];
        for work in trace.work() {
            if let Some(call) = cause(work) {
                let next = &mut next[call.id().index()];
                to[*next] = work.id();
                *next += 1;
            }
        }
        Self { first, work: to }
    }

    pub(super) fn of(&self, call: ApiCallId) -> &[WorkId] {
        &self.work[self.first[call.index()]..self.first[call.index() + 1]]
    }
}

/// The call that the arrow to this work comes from. No reader takes one that goes back in time.
pub(super) fn cause(work: Work<'_>) -> Option<ApiCall<'_>> {
    work.call().filter(|call| call.start() <= work.start())
}

#[cfg(test)]
mod tests {
    use super::Flows;
    use crate::trace::sample::{at, gpu_trace};

    #[test]
    fn each_call_leads_to_its_work_and_never_back_in_time() {
        let mut trace = gpu_trace();
        let late = trace.api_calls().find(|call| call.name() == "cuLaunchKernel").unwrap().id();
        trace.api_calls[late.index()].start = at(21);
        let flows = Flows::new(&trace);
        for call in trace.api_calls() {
            let work = flows.of(call.id());
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
