//! The kernel's clock of samples, related to the cycle counter that spans are recorded with.

use super::records::RawNanos;
use crate::clock::{Clock, Ticks};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks at the same moment.
#[derive(Clone, Copy, Debug)]
struct Pair {
    nanos: RawNanos,
    ticks: Ticks,
}

/// Converts moments of `CLOCK_MONOTONIC_RAW` to ticks. Both advance at constant rates, so the first and the last
/// reading of both give the rate, and the last one the offset.
#[derive(Debug)]
pub(super) struct SampleClock {
    clock: Clock,
    first: Pair,
    last: Pair,
}

impl SampleClock {
    /// The least time between two readings that give a better rate than the clock's own estimate: an error of 50 ns in
    /// either reading is then one in ten thousand.
    const LEAST_NANOS: u64 = 1_000_000;

    pub(super) fn new(clock: &Clock) -> Self {
        let first = read(clock);
        Self { clock: clock.clone(), first, last: first }
    }

    /// Reads both clocks. Moments around this one are then converted best.
    pub(super) fn update(&mut self) {
        self.last = read(&self.clock);
    }

    /// The moment at which both clocks were last read.
    pub(super) fn now(&self) -> RawNanos {
        self.last.nanos
    }

    /// Converts a moment to ticks.
    pub(super) fn ticks(&self, at: RawNanos) -> Ticks {
        let since_last = at.0.wrapping_sub(self.last.nanos.0).cast_signed() as f64;
        let ticks = (since_last * self.ticks_per_nano()).round() as i64;
        Ticks(self.last.ticks.0.saturating_add_signed(ticks))
    }

    /// Converts a moment in ticks.
    pub(super) fn nanos(&self, ticks: Ticks) -> RawNanos {
        let since_last = ticks.0.wrapping_sub(self.last.ticks.0).cast_signed() as f64;
        let nanos = (since_last / self.ticks_per_nano()).round() as i64;
        RawNanos(self.last.nanos.0.saturating_add_signed(nanos))
    }

    fn ticks_per_nano(&self) -> f64 {
        let nanos = self.last.nanos.0.saturating_sub(self.first.nanos.0);
        let ticks = self.last.ticks.0.saturating_sub(self.first.ticks.0);
        if nanos >= Self::LEAST_NANOS && ticks > 0 {
            return ticks as f64 / nanos as f64;
        }
        const MANY: u64 = 1 << 40;
        MANY as f64 / self.clock.duration(MANY).as_nanos().max(1) as f64
    }
}

/// Reads both clocks together. It tries a few times and returns the fastest reading.
fn read(clock: &Clock) -> Pair {
    let read = || {
        let before = clock.now().0;
        let time = clock_gettime(ClockId::MonotonicRaw);
        let width = clock.now().0.saturating_sub(before);
        let nanos = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
        (width, Pair { nanos: RawNanos(nanos), ticks: Ticks(before + width / 2) })
    };
    let (mut width, mut pair) = read();
    for (other_width, other) in (1..5).map(|_| read()) {
        if other_width < width {
            (width, pair) = (other_width, other);
        }
    }
    pair
}

#[cfg(test)]
mod tests {
    use super::SampleClock;
    use crate::clock::Clock;
    use std::{thread::sleep, time::Duration};

    #[test]
    fn a_moment_is_converted_to_the_ticks_that_were_read_with_it() {
        let mut clock = SampleClock::new(&Clock::new());
        sleep(Duration::from_millis(20));
        clock.update();
        // How long a reading took is not known here, so the best of some shows the error of the conversion.
        let error = (0..20).map(|_| {
            let pair = super::read(&clock.clock);
            let nanos = clock.clock.duration(clock.ticks(pair.nanos).0.abs_diff(pair.ticks.0)).as_nanos();
            assert!(clock.nanos(clock.ticks(pair.nanos)).0.abs_diff(pair.nanos.0) <= 1);
            nanos
        });
        let best = error.min().unwrap();
        assert!(best < 1000, "off by {best} ns");
    }
}
