//! A search for the innermost span that was open on a thread at a moment.

#[cfg(feature = "read")]
use crate::trace::TrackId;
use crate::trace::{SpanId, ThreadId, Timestamp, Trace, Track};

/// A question to [`innermost`]: a moment on a thread, and room for the span that was innermost then.
pub(super) struct Query {
    pub(super) thread: ThreadId,
    pub(super) at: Timestamp,
    pub(super) answer: Option<SpanId>,
}

/// Answers each query with the span that was entered last among those open on the thread at that moment.
pub(super) fn innermost(trace: &Trace, queries: &mut [Query]) {
    let mut order: Vec<usize> = (0..queries.len()).collect();
    order.sort_by_key(|&query| (queries[query].thread, queries[query].at));
    // By thread, not by track: a thread may have several tracks, and several threads may have had its id, one after the
    // other.
    let mut threads: Vec<_> = order.iter().map(|&query| queries[query].thread).collect();
    threads.dedup();
    let of_track = |track: &Track| threads.binary_search(&track.thread).ok();
    let of_tracks: Vec<_> = trace.tracks.iter().map(of_track).collect();
    let mut spans: Vec<Vec<SpanId>> = vec![Vec::new(); threads.len()];
    for (index, span) in trace.spans.iter().enumerate() {
        if let Some(thread) = of_tracks[span.track.index()] {
            spans[thread].push(SpanId::new(index));
        }
    }
    let data = |id: SpanId| &trace.spans[id.index()];
    spans.iter_mut().for_each(|spans| spans.sort_by_key(|&id| data(id).start));
    let mut lists = spans.iter();
    let mut current: Option<ThreadId> = None;
    let (mut open, mut entered): (Vec<SpanId>, &[SpanId]) = (Vec::new(), &[]);
    for query in order {
        let Query { thread, at, answer } = &mut queries[query];
        if current.replace(*thread) != Some(*thread) {
            open.clear();
            // The queries are in the order of the threads.
            entered = lists.next().map_or(&[], Vec::as_slice);
        }
        while let Some((&next, rest)) = entered.split_first().filter(|(next, _)| data(**next).start <= *at) {
            open.push(next);
            entered = rest;
        }
        // A span that was exited out of order stays below the spans entered after it, and is dropped once they are
        // gone.
        while open.pop_if(|&mut id| data(id).end < *at).is_some() {}
        *answer = open.last().copied();
    }
}

/// Returns the innermost span at each of these moments on tracks.
#[cfg(feature = "read")]
pub(crate) fn innermost_spans(trace: &Trace, moments: &[(TrackId, Timestamp)]) -> Vec<Option<SpanId>> {
    let query = |&(track, at): &(TrackId, Timestamp)| Query { thread: trace.track(track).thread, at, answer: None };
    let mut queries: Vec<_> = moments.iter().map(query).collect();
    innermost(trace, &mut queries);
    queries.into_iter().map(|query| query.answer).collect()
}
