//! Sets of time intervals, and the gaps between them.

use crate::trace::{ApiCall, Timestamp, Work};
use std::time::Duration;

/// A sorted set of intervals that neither overlap nor touch, such as the times at which a device did anything.
#[derive(Debug)]
pub(crate) struct Intervals {
    sorted: Vec<Interval>,
}

/// An interval of time in which something was done without a pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Interval {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// When the API call for the first work in the interval had returned, if known: it submits the work late, so that a
    /// GPU that waits for short kernels waits for the calls that launch them.
    pub(super) requested: Option<Timestamp>,
}

/// A gap between two intervals, cut to the range that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Timestamp,
    pub(super) duration: Duration,
    pub(super) cause: GapCause,
}

/// The reason why nothing was done in a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GapCause {
    /// The host had not requested the work after the gap when it began.
    Host,
    /// The host had requested the work after the gap before it began.
    Queued,
    /// It is not known when the host requested the work after the gap.
    Unknown,
}

impl Interval {
    /// Returns the time in which a piece of work ran.
    pub(crate) fn of(work: Work<'_>) -> Self {
        Self { start: work.start(), end: work.end(), requested: work.call().map(ApiCall::end) }
    }
}

impl Intervals {
    /// Merges intervals, which may be in any order and may overlap.
    pub(crate) fn new(mut intervals: Vec<Interval>) -> Self {
        // An interval that takes no time would only cut a gap in two.
        intervals.retain(|interval| interval.start < interval.end);
        intervals.sort_unstable_by_key(|interval| interval.start);
        intervals.dedup_by(|next, last| {
            if next.start == last.start {
                last.requested = last.requested.into_iter().chain(next.requested).min();
            }
            let joined = next.start <= last.end;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
        Self { sorted: intervals }
    }

    /// Returns the gaps between two moments.
    pub(super) fn gaps(&self, start: Timestamp, end: Timestamp) -> impl Iterator<Item = Gap> {
        let first = self.sorted.partition_point(|interval| interval.end <= start);
        let past = self.sorted.partition_point(|interval| interval.start < end);
        (first..=past).filter_map(move |next| {
            let began = next.checked_sub(1).map_or(Timestamp::default(), |last| self.sorted[last].end);
            let next = self.sorted.get(next);
            let (from, to) = (began.max(start), next.map_or(end, |next| next.start.min(end)));
            let cause = match next.map(|next| next.requested) {
                Some(None) => GapCause::Unknown,
                Some(Some(requested)) if requested <= began => GapCause::Queued,
                // Work that is not in the window was requested after it, so the last gap waits for the host, too.
                Some(Some(_)) | None => GapCause::Host,
            };
            (from < to).then(|| Gap { start: from, duration: to.since(from), cause })
        })
    }

    /// Returns the intervals between two moments, cut to these.
    pub(super) fn between(&self, start: Timestamp, end: Timestamp) -> impl Iterator<Item = Interval> {
        let first = self.sorted.partition_point(|interval| interval.end <= start);
        let past = self.sorted.partition_point(|interval| interval.start < end).max(first);
        let cut = move |it: &Interval| Interval { start: it.start.max(start), end: it.end.min(end), ..*it };
        self.sorted[first..past].iter().map(cut)
    }

    /// Returns how much of the time between two moments is in gaps.
    pub(crate) fn uncovered(&self, start: Timestamp, end: Timestamp) -> Duration {
        self.gaps(start, end).map(|gap| gap.duration).sum()
    }

    /// Returns how much of the time between two moments is covered by intervals.
    pub(crate) fn covered(&self, start: Timestamp, end: Timestamp) -> Duration {
        end.since(start).saturating_sub(self.uncovered(start, end))
    }
}

#[cfg(test)]
mod tests {
    use super::{Gap, GapCause, Interval, Intervals};
    use crate::trace::Timestamp;
    use proptest::prelude::*;
    use std::time::Duration;

    fn interval(start: u64, end: u64, requested: Option<u64>) -> Interval {
        let [start, end] = [start, end].map(Timestamp::from_unix_nanos);
        Interval { start, end, requested: requested.map(Timestamp::from_unix_nanos) }
    }

    fn gaps(busy: &Intervals, start: u64, end: u64) -> Vec<(u64, bool)> {
        let [start, end] = [start, end].map(Timestamp::from_unix_nanos);
        let seen = |Gap { duration, cause, .. }: Gap| (duration.as_nanos() as u64, cause == GapCause::Host);
        busy.gaps(start, end).map(seen).collect()
    }

    #[test]
    fn a_gap_waits_for_the_host_if_the_host_asked_after_it_began() {
        let busy = Intervals::new(vec![
            interval(50, 60, Some(35)), // Asked for at 35, after 30.
            interval(10, 20, Some(5)),
            interval(20, 30, Some(6)),
            interval(70, 70, Some(69)), // Takes no time.
            interval(80, 95, Some(55)), // Asked for in time.
            interval(85, 90, Some(84)), // Beside another.
            interval(97, 98, None),     // Nobody knows.
        ]);
        assert_eq!(gaps(&busy, 0, 100), [(10, true), (20, true), (20, false), (2, false), (2, true)]);
        assert_eq!(gaps(&busy, 40, 45), [(5, true)], "within a gap");
        assert_eq!(gaps(&busy, 36, 75), [(14, true), (15, false)], "gaps are cut, but begin where they begin");
        assert_eq!(gaps(&busy, 12, 28), []);
        assert_eq!(gaps(&busy, 12, 12), []);
        assert_eq!(gaps(&busy, 98, 100), [(2, true)]);
        assert_eq!(gaps(&Intervals::new(Vec::new()), 1, 4), [(3, true)]);
    }

    proptest! {
        #[test]
        fn time_is_covered_when_any_piece_is_there(
            pieces in prop::collection::vec((0_u64..60, 0_u64..20), 0..20),
            start in 0_u64..80,
            length in 0_u64..80,
        ) {
            let covered = |moment| pieces.iter().any(|&(start, length)| start <= moment && moment < start + length);
            let seen = (start..start + length).filter(|&moment| covered(moment)).count() as u64;
            let pieces = pieces.iter().map(|&(start, length)| interval(start, start + length, None));
            let busy = Intervals::new(pieces.collect());
            let [from, to] = [start, start + length].map(Timestamp::from_unix_nanos);
            let idle: Duration = busy.gaps(from, to).map(|gap| gap.duration).sum();
            prop_assert_eq!(busy.covered(from, to), Duration::from_nanos(seen));
            prop_assert_eq!(busy.covered(from, to) + idle, Duration::from_nanos(length));
            let gaps = (start..start + length).filter(|&moment| {
                !covered(moment) && (moment == start || covered(moment - 1))
            });
            prop_assert_eq!(busy.gaps(from, to).count(), gaps.count());
        }
    }
}
