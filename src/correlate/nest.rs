//! Tracks and self times of the spans of one thread, which may be exited in any order, and a search for the innermost
//! span that was open on a thread at a moment.

#[cfg(feature = "read")]
use crate::trace::TrackId;
use crate::trace::{Nesting, SpanData, SpanId, ThreadId, Timestamp, Trace, Track};

/// Assigns each span of one thread to a track, counted from 0, so that the spans of a track nest.
///
/// `spans` are in the order they were entered, and `first` is the index of the first in the trace. A span is on its
/// parent's track if it nests there. A span that is exited after its parent goes to another track, and takes the spans
/// nested in it along.
pub(super) fn overlaps(spans: &[SpanData], first: usize) -> Vec<u32> {
    let mut nesting = Nesting::default();
    let mut chosen: Vec<u32> = Vec::with_capacity(spans.len());
    for span in spans {
        let preferred = span.parent.map_or(0, |parent| chosen[parent.index() - first]) as usize;
        chosen.push(nesting.place_near(span.start, span.end, preferred) as u32);
    }
    chosen
}

/// Computes self times: each moment of a thread belongs to the innermost span that is open then.
pub(super) fn self_times(spans: &mut [SpanData], first: usize) {
    for index in 0..spans.len() {
        let SpanData { parent, mut start, end, .. } = spans[index];
        spans[index].self_nanos = nanos(start, end);
        let mut outer = parent;
        // The time after the parent's end is taken from the spans that the parent is nested in.
        while let Some(id) = outer.filter(|_| start < end) {
            let span = &mut spans[id.index() - first];
            let until = span.end.min(end);
            span.self_nanos = span.self_nanos.saturating_sub(nanos(start, until));
            start = start.max(until);
            outer = span.parent;
        }
    }
}

/// Computes the self times of a trace that was read from a file, and puts spans that overlap without nesting on tracks
/// of their own, unless the file has done so. The spans of a track follow each other.
#[cfg(feature = "read")]
pub(crate) fn place_spans(trace: &mut Trace, is_placed: bool) {
    self_times(&mut trace.spans, 0);
    if is_placed {
        return;
    }
    let mut first = 0;
    while first < trace.spans.len() {
        let track = trace.spans[first].track;
        let length = trace.spans[first..].iter().take_while(|span| span.track == track).count();
        let overlaps = overlaps(&trace.spans[first..first + length], first);
        let mut further: Vec<TrackId> = Vec::new();
        for (span, overlap) in trace.spans[first..first + length].iter_mut().zip(overlaps) {
            let Some(number) = overlap.checked_sub(1) else { continue };
            while further.len() <= number as usize {
                let next = further.len() as u32 + 1;
                trace.tracks.push(Track { overlap: next, ..trace.tracks[track.index()].clone() });
                further.push(TrackId::new(trace.tracks.len() - 1));
            }
            span.track = further[number as usize];
        }
        first += length;
    }
}

fn nanos(start: Timestamp, end: Timestamp) -> u64 {
    end.as_unix_nanos().saturating_sub(start.as_unix_nanos())
}

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

#[cfg(test)]
mod tests {
    use super::{overlaps, self_times};
    use crate::trace::{CallsiteId, Cut, FieldRange, SpanData, SpanId, Timestamp, TrackId};
    use proptest::prelude::*;

    fn span(parent: Option<usize>, start: u64, end: u64) -> SpanData {
        SpanData {
            callsite: CallsiteId::new(0),
            track: TrackId::new(0),
            parent: parent.map(SpanId::new),
            previous: None,
            step: None,
            start: Timestamp::from_unix_nanos(start),
            end: Timestamp::from_unix_nanos(end),
            self_nanos: 0,
            fields: FieldRange::default(),
            cut: Cut::default(),
        }
    }

    #[test]
    fn spans_that_nest_share_a_track() {
        let spans =
            [span(None, 0, 10), span(Some(0), 1, 5), span(Some(1), 2, 5), span(Some(0), 5, 10), span(None, 10, 12)];
        assert_eq!(overlaps(&spans, 0), [0, 0, 0, 0, 0]);
    }

    #[test]
    fn a_span_that_crosses_goes_elsewhere_and_takes_its_children_along() {
        let spans = [span(None, 0, 10), span(Some(0), 5, 15), span(Some(1), 6, 9), span(Some(1), 11, 12)];
        assert_eq!(overlaps(&spans, 0), [0, 1, 1, 1]);
    }

    #[test]
    fn each_moment_belongs_to_the_innermost_span() {
        let mut spans = [span(None, 0, 10), span(Some(0), 2, 6), span(Some(1), 4, 8)];
        self_times(&mut spans, 0);
        assert_eq!(spans.map(|span| span.self_nanos), [4, 2, 4]);
    }

    /// Any interleaving of enters and exits: `Some` exits one of the open spans, if there are any; `None` enters
    /// another.
    fn interleaving() -> impl Strategy<Value = Vec<Option<prop::sample::Index>>> {
        prop::collection::vec(prop::option::weighted(0.45, any::<prop::sample::Index>()), 0..200)
    }

    fn play(choices: &[Option<prop::sample::Index>], first: usize) -> Vec<SpanData> {
        let mut spans: Vec<SpanData> = Vec::new();
        let mut open: Vec<usize> = Vec::new();
        for (time, choice) in choices.iter().enumerate() {
            match choice {
                Some(index) if !open.is_empty() => {
                    let closing = open.remove(index.index(open.len()));
                    spans[closing].end = Timestamp::from_unix_nanos(time as u64);
                }
                _ => {
                    spans.push(span(open.last().map(|parent| parent + first), time as u64, choices.len() as u64));
                    open.push(spans.len() - 1);
                }
            }
        }
        spans
    }

    proptest! {
        #[test]
        fn any_interleaving_gives_tracks_on_which_spans_nest(choices in interleaving(), first in 0_usize..3) {
            let spans = play(&choices, first);
            let tracks = overlaps(&spans, first);
            for (a, left) in spans.iter().enumerate() {
                for (b, right) in spans.iter().enumerate().skip(a + 1) {
                    let apart = left.end <= right.start;
                    let inside = right.end <= left.end;
                    prop_assert!(tracks[a] != tracks[b] || apart || inside, "{left:?} crosses {right:?}");
                }
            }
        }

        #[test]
        fn self_times_add_up_to_the_time_anything_was_open(choices in interleaving(), first in 0_usize..3) {
            let mut spans = play(&choices, first);
            self_times(&mut spans, first);
            let covered = (0..choices.len() as u64)
                .map(Timestamp::from_unix_nanos)
                .filter(|&moment| spans.iter().any(|span| span.start <= moment && moment < span.end))
                .count();
            prop_assert_eq!(spans.iter().map(|span| span.self_nanos).sum::<u64>(), covered as u64);
        }
    }
}
