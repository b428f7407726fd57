use crate::trace::Timestamp;
use std::time::Duration;

/// When a device did something: stretches of time in order, apart from each other.
#[derive(Debug)]
pub(super) struct Busy {
    stretches: Vec<Stretch>,
}

/// From when to when something was done without a pause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// When the host asked for what was done first, if that is known.
    pub(super) asked: Option<Timestamp>,
}

/// A time between two stretches, or the part of it that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) start: Timestamp,
    pub(super) time: Duration,
    /// Whether the host had not asked for what came next when the gap began.
    pub(super) waiting: bool,
}

impl Busy {
    /// Puts together pieces in any order, which may overlap.
    pub(super) fn new(mut pieces: Vec<Stretch>) -> Self {
        // What takes no time would only cut gaps in two.
        pieces.retain(|piece| piece.start < piece.end);
        pieces.sort_unstable_by_key(|piece| piece.start);
        pieces.dedup_by(|next, last| {
            if next.start == last.start {
                last.asked = last.asked.into_iter().chain(next.asked).min();
            }
            let joined = next.start <= last.end;
            if joined {
                last.end = last.end.max(next.end);
            }
            joined
        });
        Self { stretches: pieces }
    }

    /// The gaps between two moments.
    pub(super) fn gaps(&self, start: Timestamp, end: Timestamp) -> impl Iterator<Item = Gap> {
        let first = self.stretches.partition_point(|stretch| stretch.end <= start);
        let past = self.stretches.partition_point(|stretch| stretch.start < end);
        (first..=past).filter_map(move |next| {
            let began = next.checked_sub(1).map_or(Timestamp::default(), |last| self.stretches[last].end);
            let next = self.stretches.get(next);
            let (from, to) = (began.max(start), next.map_or(end, |next| next.start.min(end)));
            // What is not in the window was asked for after it, so a gap that nothing ends is one of waiting too.
            let waiting = next.is_none_or(|next| next.asked.is_some_and(|asked| asked > began));
            (from < to).then(|| Gap { start: from, time: to.since(from), waiting })
        })
    }

    /// How much of the time between two moments is in no gap.
    pub(super) fn time(&self, start: Timestamp, end: Timestamp) -> Duration {
        let idle = self.gaps(start, end).map(|gap| gap.time).sum();
        end.since(start).saturating_sub(idle)
    }
}

#[cfg(test)]
mod tests {
    use super::{Busy, Gap, Stretch};
    use crate::trace::Timestamp;
    use proptest::prelude::*;
    use std::time::Duration;

    fn stretch(start: u64, end: u64, asked: Option<u64>) -> Stretch {
        let [start, end] = [start, end].map(Timestamp::from_unix_nanos);
        Stretch { start, end, asked: asked.map(Timestamp::from_unix_nanos) }
    }

    fn gaps(busy: &Busy, start: u64, end: u64) -> Vec<(u64, bool)> {
        let [start, end] = [start, end].map(Timestamp::from_unix_nanos);
        busy.gaps(start, end).map(|Gap { time, waiting, .. }| (time.as_nanos() as u64, waiting)).collect()
    }

    #[test]
    fn gaps_are_of_waiting_if_the_host_asked_after_they_began() {
        let busy = Busy::new(vec![
            stretch(50, 60, Some(35)), // Asked for at 35, after 30.
            stretch(10, 20, Some(5)),
            stretch(20, 30, Some(6)),
            stretch(70, 70, Some(69)), // Takes no time.
            stretch(80, 95, Some(55)), // Asked for in time.
            stretch(85, 90, Some(84)), // Beside another.
            stretch(97, 98, None),     // Nobody knows.
        ]);
        assert_eq!(gaps(&busy, 0, 100), [(10, true), (20, true), (20, false), (2, false), (2, true)]);
        assert_eq!(gaps(&busy, 40, 45), [(5, true)], "within a gap");
        assert_eq!(gaps(&busy, 36, 75), [(14, true), (15, false)], "gaps are cut, but begin where they begin");
        assert_eq!(gaps(&busy, 12, 28), []);
        assert_eq!(gaps(&busy, 12, 12), []);
        assert_eq!(gaps(&busy, 98, 100), [(2, true)]);
        assert_eq!(gaps(&Busy::new(Vec::new()), 1, 4), [(3, true)]);
    }

    proptest! {
        #[test]
        fn time_is_busy_when_any_piece_is_there(
            pieces in prop::collection::vec((0_u64..60, 0_u64..20), 0..20),
            start in 0_u64..80,
            length in 0_u64..80,
        ) {
            let covered = |moment| pieces.iter().any(|&(start, length)| start <= moment && moment < start + length);
            let seen = (start..start + length).filter(|&moment| covered(moment)).count() as u64;
            let busy = Busy::new(pieces.iter().map(|&(start, length)| stretch(start, start + length, None)).collect());
            let [from, to] = [start, start + length].map(Timestamp::from_unix_nanos);
            let idle: Duration = busy.gaps(from, to).map(|gap| gap.time).sum();
            prop_assert_eq!(busy.time(from, to), Duration::from_nanos(seen));
            prop_assert_eq!(busy.time(from, to) + idle, Duration::from_nanos(length));
            let gaps = (start..start + length).filter(|&moment| {
                !covered(moment) && (moment == start || covered(moment - 1))
            });
            prop_assert_eq!(busy.gaps(from, to).count(), gaps.count());
        }
    }
}
