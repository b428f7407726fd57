//! Joins sampled stacks to the spans that they were taken in.

use super::{
    nest::{Query, innermost},
    pools::samples_of_pools,
};
use crate::{
    clock::Timeline,
    sampling::{ResolvedSample, ResolvedStacks},
    trace::{StackSampleData, StackSampling, ThreadId, Timestamp, Trace, Track, TrackId},
};
use rustc_hash::FxHashMap;

/// How near to the start or the end of a span a sample may belong to either side, in nanoseconds. Both clocks are read
/// together to within some 50 ns; the rest is for machines on which that takes longer.
const EDGE_NANOS: u64 = 1_000;

/// Adds the sampled stacks of a window to its trace, each in the span that was innermost on its thread, or in the one
/// that its pool worked for.
pub(crate) fn join_stacks(trace: &mut Trace, stacks: ResolvedStacks, timeline: &Timeline) {
    let ResolvedStacks { sampling, samples, threads } = stacks;
    let (start, end) = (trace.start, trace.end);
    let names: FxHashMap<_, _> = threads.iter().map(|thread| (thread.id, thread.name.as_str())).collect();
    let mut tracks: FxHashMap<ThreadId, TrackId> = FxHashMap::default();
    for (index, track) in trace.tracks.iter().enumerate().filter(|(_, track)| track.overlap == 0) {
        tracks.entry(track.thread).or_insert(TrackId::new(index));
    }
    let times: Vec<_> = samples.iter().map(|sample| timeline.at_any(sample.at)).collect();
    // A wait may have begun before the window. It is cut there, and belongs to the span that was open then.
    let query = |(sample, at): (&ResolvedSample, &Timestamp)| Query {
        thread: sample.thread,
        at: (*at).max(start),
        answer: None,
    };
    let mut queries: Vec<_> = samples.iter().zip(&times).map(query).collect();
    innermost(trace, &mut queries);
    let edges = Edges::of(trace);
    let mut data = Vec::with_capacity(samples.len());
    for ((sample, began), Query { thread, at, answer }) in samples.iter().zip(times).zip(queries) {
        let cut = start.as_unix_nanos().saturating_sub(began.as_unix_nanos());
        if at > end || (cut > 0 && (!sample.waiting || cut >= sample.nanos)) {
            continue;
        }
        let nanos = sample.nanos - cut;
        let left = end.as_unix_nanos() - at.as_unix_nanos();
        let track = *tracks.entry(thread).or_insert_with(|| {
            let name = names.get(&thread).filter(|name| !name.is_empty());
            let name = name.map_or_else(|| format!("thread {}", thread.as_u64()), |name| (*name).to_owned());
            trace.tracks.push(Track { thread, name, overlap: 0 });
            TrackId::new(trace.tracks.len() - 1)
        });
        data.push(StackSampleData {
            at,
            nanos: if sample.waiting { nanos.min(left) } else { nanos },
            track,
            span: answer,
            stack: sample.stack,
            waiting: sample.waiting,
            pool: false,
            at_edge: edges.are_near(thread, at),
            truncated: sample.truncated,
        });
    }
    trace.losses.stack_samples += sampling.lost;
    // Cut waits may have moved.
    data.sort_by_key(|sample| sample.at);
    let mut sampling = StackSampling { samples: data, ..sampling };
    for (index, span) in samples_of_pools(trace, &sampling) {
        let sample = &mut sampling.samples[index];
        (sample.span, sample.pool) = (Some(span), true);
        sample.at_edge |= edges.are_near(trace.track(trace.spans[span.index()].track).thread, sample.at);
    }
    trace.stack_sampling = Some(Box::new(sampling));
}

/// The moments at which spans were entered and exited, by thread.
struct Edges(FxHashMap<ThreadId, Vec<Timestamp>>);

impl Edges {
    fn of(trace: &Trace) -> Self {
        let mut edges: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for span in &trace.spans {
            edges.entry(trace.tracks[span.track.index()].thread).or_default().extend([span.start, span.end]);
        }
        edges.values_mut().for_each(|edges| edges.sort_unstable());
        Self(edges)
    }

    fn are_near(&self, thread: ThreadId, at: Timestamp) -> bool {
        let Some(edges) = self.0.get(&thread) else { return false };
        let after = edges.partition_point(|edge| *edge < at);
        let around = [after.checked_sub(1).map(|before| edges[before]), edges.get(after).copied()];
        around.into_iter().flatten().any(|edge| edge.as_unix_nanos().abs_diff(at.as_unix_nanos()) <= EDGE_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::join_stacks;
    use crate::{
        clock::{Anchor, Clock, Ticks},
        sampling::{ResolvedSample, ResolvedStacks},
        thread::ThreadInfo,
        trace::{
            CallsiteId, Cut, FieldRange, Losses, Span, SpanData, StackSampling, ThreadId, Timestamp, Trace, Track,
            TrackId,
        },
    };
    use proptest::prelude::*;

    const OPEN: u64 = 1_000_000;
    const CLOSE: u64 = 2_000_000;
    /// The span of most tests: track, start and end.
    const SPAN: (usize, u64, u64) = (0, 1_500_000, 1_600_000);

    /// Joins samples, given as thread, time, duration and whether it waits, to spans on the tracks of threads 1, 5 and,
    /// a second one, 1.
    fn join(spans: &[(usize, u64, u64)], samples: &[(u64, u64, u64, bool)]) -> Trace {
        let time = Timestamp::from_unix_nanos;
        let track = |(thread, overlap)| Track { thread: ThreadId::new(thread), name: "main".to_owned(), overlap };
        let span = |&(track, start, end): &(usize, u64, u64)| SpanData {
            callsite: CallsiteId::new(0),
            track: TrackId::new(track),
            parent: None,
            previous: None,
            step: None,
            start: time(start),
            end: time(end),
            self_nanos: 0,
            fields: FieldRange::default(),
            cut: Cut::default(),
        };
        let mut trace = Trace {
            start: time(OPEN),
            end: time(CLOSE),
            tracks: [(1, 0), (5, 0), (1, 1)].map(track).into(),
            spans: spans.iter().map(span).collect(),
            ..Trace::default()
        };
        let sample = |&(thread, at, nanos, waiting): &(u64, u64, u64, bool)| ResolvedSample {
            at: Ticks(at),
            nanos,
            thread: ThreadId::new(thread),
            stack: None,
            waiting,
            truncated: false,
        };
        let threads = vec![ThreadInfo { id: ThreadId::new(2), name: "worker".to_owned() }];
        let samples = samples.iter().map(sample).collect();
        let anchors = [OPEN, CLOSE].map(|at| Anchor { ticks: Ticks(at), unix: time(at) });
        let timeline = Clock::mock().timeline(&anchors);
        let sampling = StackSampling { lost: 4, ..StackSampling::default() };
        join_stacks(&mut trace, ResolvedStacks { sampling, samples, threads }, &timeline);
        trace
    }

    #[test]
    fn lost_samples_are_losses_of_the_trace() {
        assert_eq!(join(&[SPAN], &[]).losses(), &Losses { stack_samples: 4, ..Losses::default() });
    }

    #[test]
    fn samples_near_an_edge_are_marked_and_others_are_in_their_span() {
        let at = [1_498_999, 1_499_000, 1_500_000, 1_501_001, 1_598_999, 1_599_000, 1_600_000, 1_601_001];
        let trace = join(&[SPAN], &at.map(|at| (1, at, 10, false)));
        let found: Vec<_> = trace.stack_samples().map(|it| (it.span().is_some(), it.is_at_edge())).collect();
        let expected = [
            (false, false),
            (false, true),
            (true, true),
            (true, false),
            (true, false),
            (true, true),
            // The end belongs to the span.
            (true, true),
            (false, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn threads_without_spans_have_tracks() {
        let trace = join(&[SPAN], &[(2, 1_550_000, 10, false), (3, 1_550_000, 10, false), (1, 1_550_000, 10, false)]);
        let found = trace.stack_samples().map(|it| (it.track().thread_name().to_owned(), it.span().is_some()));
        let expected = [("worker", false), ("thread 3", false), ("main", true)];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(name, in_span)| (name.to_owned(), in_span)));
    }

    #[test]
    fn waits_are_cut_at_the_window_and_samples_outside_of_it_dropped() {
        let samples = [
            (1, OPEN - 10, 10, false),
            (1, OPEN - 100, 100, true),
            (1, OPEN - 100, 300, true),
            (1, CLOSE - 50, 300, true),
            (1, CLOSE - 40, 300, false),
            (1, CLOSE + 1, 300, true),
        ];
        let trace = join(&[SPAN], &samples);
        let found = trace.stack_samples().map(|it| (it.at().as_unix_nanos(), it.duration().as_nanos()));
        assert_eq!(found.collect::<Vec<_>>(), [(OPEN, 200), (CLOSE - 50, 50), (CLOSE - 40, 300)]);
    }

    #[test]
    fn a_wait_from_before_the_window_is_in_the_span_that_was_open_when_it_opened() {
        let trace = join(&[(0, OPEN, CLOSE)], &[(1, OPEN - 100, 300, true)]);
        assert_eq!(trace.stack_samples().map(|it| it.span().is_some()).collect::<Vec<_>>(), [true]);
    }

    proptest! {
        /// Spans that nest, cross, or take no time, and samples at any time: each is in the span that was entered last
        /// of those open on its thread, on whatever track.
        #[test]
        fn every_sample_is_in_the_innermost_span(
            spans in prop::collection::vec((0_usize..3, 0_u64..60, 0_u64..40), 0..24),
            samples in prop::collection::vec(
                (prop::sample::select(vec![1_u64, 5, 9]), 0_u64..120, any::<bool>()),
                0..40,
            ),
        ) {
            // Few moments, far enough apart for edges to be told from the rest.
            let at = |moment: u64| OPEN + 10_000 * moment;
            let spans: Vec<_> = spans.iter().map(|&(track, start, length)| (track, at(start), at(start + length)))
                .collect();
            // Some samples are at a moment at which spans begin and end, others in between.
            let samples: Vec<_> = samples.iter().map(|&(thread, at, waits)| (thread, OPEN + 5_000 * at, 10, waits))
                .collect();
            let trace = join(&spans, &samples);
            prop_assert_eq!(trace.stack_samples().count(), samples.len());
            for sample in trace.stack_samples() {
                let (thread, at) = (sample.track().thread(), sample.at());
                let of_thread = || trace.spans().filter(|span| span.track().thread() == thread);
                let open = of_thread().filter(|span| span.start() <= at && at <= span.end());
                let innermost = open.max_by_key(|span| (span.start(), span.id().index()));
                prop_assert_eq!(sample.span().map(Span::id), innermost.map(Span::id));
                let is_edge = of_thread().any(|span| span.start() == at || span.end() == at);
                prop_assert_eq!(sample.is_at_edge(), is_edge);
            }
        }
    }
}
