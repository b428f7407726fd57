use crate::trace::{SpanId, ThreadId, Timestamp, Trace};
use std::collections::HashMap;

/// A moment on a thread, and a place for the answer.
pub(super) struct Query {
    pub(super) thread: ThreadId,
    pub(super) at: Timestamp,
    pub(super) answer: Option<SpanId>,
}

/// Finds, for each moment, the span that was entered last of those open on the thread then.
pub(super) fn innermost(trace: &Trace, queries: &mut [Query]) {
    let mut order: Vec<usize> = (0..queries.len()).collect();
    order.sort_by_key(|&query| (queries[query].thread, queries[query].at));
    // A thread may have several tracks, and its id may have been another's before.
    let mut spans: HashMap<ThreadId, Vec<SpanId>> = queries.iter().map(|query| (query.thread, Vec::new())).collect();
    for (index, span) in trace.spans.iter().enumerate() {
        if let Some(spans) = spans.get_mut(&trace.tracks[span.track.index()].thread) {
            spans.push(SpanId::new(index));
        }
    }
    let data = |id: SpanId| &trace.spans[id.index()];
    spans.values_mut().for_each(|spans| spans.sort_by_key(|&id| data(id).start));
    let mut now: Option<ThreadId> = None;
    let (mut open, mut entered): (Vec<SpanId>, &[SpanId]) = (Vec::new(), &[]);
    for query in order {
        let Query { thread, at, answer } = &mut queries[query];
        if now.replace(*thread) != Some(*thread) {
            open.clear();
            entered = spans.get(thread).map_or(&[], Vec::as_slice);
        }
        while let Some((&next, rest)) = entered.split_first().filter(|(next, _)| data(**next).start <= *at) {
            open.push(next);
            entered = rest;
        }
        // A span exited out of order is passed over once what was entered after it is gone.
        while open.pop_if(|&mut id| data(id).end < *at).is_some() {}
        *answer = open.last().copied();
    }
}
