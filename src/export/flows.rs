//! Arrows from calls to the work that they caused.

use crate::trace::{ApiCall, ApiCallId, Trace, Work, WorkId};

/// The arrows of a trace: from which call to which work they lead.
#[derive(Debug)]
pub(super) struct Flows {
    /// The call that the arrow to each piece of work comes from.
    cause: Vec<Option<ApiCallId>>,
    /// The place in `work` where that of each call begins, and where that of the last call ends.
    first: Vec<u32>,
    /// The work that arrows lead to, call by call.
    work: Vec<WorkId>,
}

impl Flows {
    pub(super) fn new(trace: &Trace) -> Self {
        let cause: Vec<_> = trace.work().map(cause).collect();
        // One for each call, one for the end, and one to count in.
        let mut first = vec![0_u32; trace.api_calls().len() + 2];
        for call in cause.iter().flatten() {
            first[call.index() + 2] += 1;
        }
        for call in 1..first.len() {
            first[call] += first[call - 1];
        }
        let mut to = vec![WorkId::new(0); first.last().map_or(0, |count| *count as usize)];
        for (work, call) in cause.iter().enumerate() {
            if let Some(call) = call {
                let next = &mut first[call.index() + 1];
                to[*next as usize] = WorkId::new(work);
                *next += 1;
            }
        }
        Self { cause, first, work: to }
    }

    /// The work that the arrows of a call lead to.
    pub(super) fn of(&self, call: ApiCallId) -> &[WorkId] {
        &self.work[self.first[call.index()] as usize..self.first[call.index() + 1] as usize]
    }

    /// Whether an arrow leads to this work.
    pub(super) fn lead_to(&self, work: WorkId) -> bool {
        self.cause[work.index()].is_some()
    }
}

/// The call that the arrow to this work comes from. No reader accepts an arrow that goes back in time.
fn cause(work: Work<'_>) -> Option<ApiCallId> {
    work.call().filter(|call| call.start() <= work.start()).map(ApiCall::id)
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
