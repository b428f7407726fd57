//! The clock: the processor's cycle counter, whose readings are later converted to the wall clock.
//!
//! The hot path reads the counter, since that takes half as long as `clock_gettime`, and two readings are most of the
//! cost of recording a span. The counter's rate is known in advance only to a few hundred parts per million, and the
//! wall clock's rate is adjusted all the time. So each window has anchors, at both ends and in between, at which both
//! clocks were read together. Moments between two anchors are interpolated.

use crate::trace::Timestamp;
use std::time::{Duration, SystemTime};

/// A reading of the cycle counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticks(pub(crate) u64);

/// A simultaneous reading of both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Anchor {
    pub(crate) ticks: Ticks,
    pub(crate) unix: Timestamp,
}

/// The cycle counter and the wall clock of this machine.
#[derive(Clone, Debug)]
pub(crate) struct Clock(quanta::Clock);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(quanta::Clock::new())
    }

    /// Creates a clock that stands still, and need not be calibrated.
    pub(crate) fn mock() -> Self {
        Self(quanta::Clock::mock().0)
    }

    /// Reads the cycle counter.
    #[inline]
    pub(crate) fn now(&self) -> Ticks {
        Ticks(self.0.raw())
    }

    /// Reads both clocks together. It tries a few times and returns the fastest reading.
    pub(crate) fn anchor(&self) -> Anchor {
        let read = || {
            let before = self.now().0;
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let width = self.now().0.saturating_sub(before);
            let unix = Timestamp::from_unix_nanos(u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX));
            (width, Anchor { ticks: Ticks(before + width / 2), unix })
        };
        (0..5).map(|_| read()).min_by_key(|&(width, _)| width).map(|(_, anchor)| anchor).unwrap_or_default()
    }

    /// Converts ticks to a duration, using the rate estimated without anchors.
    pub(crate) fn duration(&self, ticks: u64) -> Duration {
        Duration::from_nanos(self.0.delta_as_nanos(0, ticks))
    }

    /// The length of a tick in nanoseconds, estimated without anchors.
    fn nanos_per_tick(&self) -> f64 {
        const MANY: u64 = 1 << 40;
        self.0.delta_as_nanos(0, MANY) as f64 / MANY as f64
    }

    /// Builds the map from ticks to the wall clock for the time between the first and the last of these anchors.
    pub(crate) fn timeline(&self, anchors: &[Anchor]) -> Timeline {
        Timeline::new(anchors, self.nanos_per_tick())
    }
}

/// Maps the ticks of one window to the wall clock, which may run a little faster or slower between anchors.
#[derive(Clone, Debug)]
pub(crate) struct Timeline {
    pieces: Vec<Piece>,
}

/// The part of a [`Timeline`] from one anchor to the next.
#[derive(Clone, Copy, Debug)]
struct Piece {
    ticks: Ticks,
    unix: Timestamp,
    nanos_per_tick: f64,
}

impl Timeline {
    /// The allowed error of the time between two anchors: a fraction of it, plus nanoseconds for reading the clocks. A
    /// larger error means that the wall clock was set.
    const TOLERANCE: (f64, f64) = (0.005, 5_000.0);

    fn new(anchors: &[Anchor], expected: f64) -> Self {
        let mut pieces: Vec<Piece> = Vec::with_capacity(anchors.len());
        for pair in anchors.windows(2) {
            let (from, to) = (pair[0], pair[1]);
            let ticks = to.ticks.0.saturating_sub(from.ticks.0);
            // Subtracted as integers, since an `f64` resolves today's timestamps only to 256 ns.
            let nanos = to.unix.as_unix_nanos().wrapping_sub(from.unix.as_unix_nanos()).cast_signed() as f64;
            let expected_nanos = ticks as f64 * expected;
            let (fraction, reading) = Self::TOLERANCE;
            let trusted = nanos >= 0.0 && (nanos - expected_nanos).abs() < expected_nanos * fraction + reading;
            let nanos_per_tick = if trusted { nanos / ticks.max(1) as f64 } else { expected };
            // If the wall clock was set, time continues as if it had not been.
            let unix = pieces.last().map_or(from.unix, |piece| piece.at(from.ticks));
            pieces.push(Piece { ticks: from.ticks, unix, nanos_per_tick });
        }
        if pieces.is_empty() {
            let Anchor { ticks, unix } = anchors.first().copied().unwrap_or_default();
            pieces.push(Piece { ticks, unix, nanos_per_tick: expected });
        }
        Self { pieces }
    }

    /// Converts ticks to a moment. Anything before the window counts as its opening.
    pub(crate) fn at(&self, ticks: Ticks) -> Timestamp {
        let after = self.pieces.partition_point(|piece| piece.ticks <= ticks);
        self.pieces[after.saturating_sub(1)].at(ticks)
    }

    /// Converts ticks to a moment. Moments before the window are extrapolated from the rate between its first two
    /// anchors.
    pub(crate) fn at_any(&self, ticks: Ticks) -> Timestamp {
        let start = self.pieces[0].unix.as_unix_nanos();
        Timestamp::from_unix_nanos(start.saturating_add_signed(self.since_start(ticks)))
    }

    /// Returns the time between two moments, both of which may precede the window. The result does not depend on
    /// whether the wall clock was set in between.
    pub(crate) fn between(&self, from: Ticks, to: Ticks) -> Duration {
        let nanos = self.since_start(to).saturating_sub(self.since_start(from));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// Nanoseconds since the window opened, negative before that.
    fn since_start(&self, ticks: Ticks) -> i64 {
        let first = self.pieces[0];
        if ticks < first.ticks {
            return -(((first.ticks.0 - ticks.0) as f64 * first.nanos_per_tick).round() as i64);
        }
        self.at(ticks).as_unix_nanos().wrapping_sub(first.unix.as_unix_nanos()).cast_signed()
    }
}

impl Piece {
    fn at(&self, ticks: Ticks) -> Timestamp {
        let since = ticks.0.saturating_sub(self.ticks.0) as f64 * self.nanos_per_tick;
        Timestamp::from_unix_nanos(self.unix.as_unix_nanos() + since.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::{Anchor, Clock, Ticks, Timeline};
    use crate::trace::Timestamp;
    use std::time::Duration;

    fn anchor(ticks: u64, unix: u64) -> Anchor {
        Anchor { ticks: Ticks(ticks), unix: Timestamp::from_unix_nanos(unix) }
    }

    #[test]
    fn moments_between_two_anchors_are_interpolated() {
        let line = Timeline::new(&[anchor(1_000, 50_000), anchor(3_000, 51_002)], 0.5);
        assert_eq!(line.at(Ticks(1_000)).as_unix_nanos(), 50_000);
        assert_eq!(line.at(Ticks(2_000)).as_unix_nanos(), 50_501);
        assert_eq!(line.at(Ticks(3_000)).as_unix_nanos(), 51_002);
        assert_eq!(line.at(Ticks(0)).as_unix_nanos(), 50_000);
    }

    #[test]
    fn a_rate_that_changes_is_followed_from_anchor_to_anchor() {
        let anchors = [anchor(0, 1_000_000), anchor(1_000_000, 1_500_000), anchor(2_000_000, 2_001_000)];
        let line = Timeline::new(&anchors, 0.5);
        let moments =
            [500_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000].map(|ticks| line.at(Ticks(ticks)).as_unix_nanos());
        assert_eq!(moments, [1_250_000, 1_500_000, 1_750_500, 2_001_000, 2_502_000]);
    }

    #[test]
    fn a_wall_clock_that_was_set_meanwhile_is_not_believed() {
        let line = Timeline::new(&[anchor(0, 1_000_000), anchor(1_000, 0)], 0.5);
        assert_eq!(line.at(Ticks(1_000)).as_unix_nanos(), 1_000_500);
        let line = Timeline::new(&[anchor(0, 0), anchor(1_000, 3_600_000_000_000)], 0.5);
        assert_eq!(line.at(Ticks(1_000)).as_unix_nanos(), 500);
    }

    #[test]
    fn moments_before_the_first_anchor_are_extrapolated_by_the_rate_after_it() {
        let line = Timeline::new(&[anchor(1_000_000, 5_000_000), anchor(2_000_000, 5_501_000)], 0.5);
        assert_eq!(line.at_any(Ticks(0)).as_unix_nanos(), 4_499_000);
        assert_eq!(line.at_any(Ticks(2_000_000)).as_unix_nanos(), 5_501_000);
        assert_eq!(line.between(Ticks(0), Ticks(2_000_000)), Duration::from_nanos(1_002_000));
        assert_eq!(line.between(Ticks(2_000_000), Ticks(0)), Duration::ZERO);
    }

    #[test]
    fn the_counter_agrees_with_the_wall_clock() {
        let clock = Clock::new();
        // An anchor, and how many nanoseconds the reading took: many only if the thread was suspended.
        let read = || {
            let before = clock.now();
            let anchor = clock.anchor();
            (anchor, (clock.now().0 - before.0) as f64 * clock.nanos_per_tick())
        };
        // Long enough for a wrong rate to show.
        let pause = || std::thread::sleep(Duration::from_millis(20));
        let (open, open_took) = read();
        pause();
        let (middle, middle_took) = read();
        pause();
        let (close, close_took) = read();
        let line = clock.timeline(&[open, close]);
        let error = line.at(middle.ticks).as_unix_nanos().abs_diff(middle.unix.as_unix_nanos());
        let allowed = 5_000.0 + open_took + middle_took + close_took;
        assert!((error as f64) < allowed, "off by {error} ns, of which {allowed} ns can be the readings'");
    }
}
