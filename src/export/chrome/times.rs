//! Conversion of timestamps to the times of a document.

use super::flavor::Flavor;
use crate::{
    export::micros::Micros,
    trace::{Timestamp, Trace},
};

/// Converts timestamps to the microseconds of a document, which count from its base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    flavor: Flavor,
    base: u64,
}

impl Times {
    /// The nanoseconds of a day. The base is a multiple of it, so that the ranks of a run agree on the base, and
    /// microseconds since then are small enough for readers that add them in floating point.
    const DAY: u64 = 24 * 3600 * 1_000_000_000;

    pub(super) fn new(trace: &Trace, flavor: Flavor) -> Self {
        Self { flavor, base: trace.start().as_unix_nanos() / Self::DAY * Self::DAY }
    }

    /// Returns the base, in nanoseconds since 1970.
    pub(super) fn base(self) -> u64 {
        self.base
    }

    /// Returns the time of a moment.
    #[inline]
    pub(super) fn at(self, at: Timestamp) -> Micros {
        let nanos = self.since_base(at);
        match self.flavor {
            Flavor::Kineto => Micros::of(nanos),
            Flavor::TorchTensorBoard => Micros::of_ticks(Micros::ticks(nanos)),
        }
    }

    /// Returns the duration from `start` to `end`. A reader that adds it to the text of the start gets the text of the
    /// end.
    #[inline]
    pub(super) fn between(self, start: Timestamp, end: Timestamp) -> Micros {
        match self.flavor {
            Flavor::Kineto => Micros::of(end.as_unix_nanos().saturating_sub(start.as_unix_nanos())),
            Flavor::TorchTensorBoard => {
                let [start, end] = [start, end].map(|at| Micros::ticks(self.since_base(at)));
                Micros::of_ticks(end.saturating_sub(start))
            }
        }
    }

    fn since_base(self, at: Timestamp) -> u64 {
        at.as_unix_nanos().saturating_sub(self.base)
    }
}
