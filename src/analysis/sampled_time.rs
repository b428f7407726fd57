//! The time that samples stand for, how exact a share of it is, and what could not be sampled.

use crate::trace::StackSample;
use std::{collections::BTreeSet, time::Duration};

/// The time that samples stand for, and their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SampledTime {
    /// The time on the CPU, as estimated from samples.
    pub cpu: Duration,
    /// The time that threads waited, or were ready while others ran.
    pub waiting: Duration,
    /// The number of samples on the CPU.
    pub samples: u64,
    /// The number of waits.
    pub waits: u64,
    /// The number of samples and waits that are within a microsecond of the edge of a span, and so may belong to
    /// another.
    pub at_edge: u64,
}

impl SampledTime {
    /// The fewest samples of which a share is given. With fewer, its standard error may exceed 10 points, as it is up
    /// to half the reciprocal of the square root of their number.
    pub const MIN_SAMPLES: u64 = 25;

    /// Returns the percentage of CPU time that this is of a whole; `None` if the whole has fewer than
    /// [`MIN_SAMPLES`](Self::MIN_SAMPLES).
    #[must_use]
    pub fn percent_of(&self, whole: &Self) -> Option<f64> {
        let is_known = whole.samples >= Self::MIN_SAMPLES && !whole.cpu.is_zero();
        is_known.then(|| 100.0 * self.cpu.as_secs_f64() / whole.cpu.as_secs_f64())
    }

    /// Returns by how many points the percentage may be off, in either direction, in 19 of 20 cases; `None` if the
    /// percentage is not known.
    ///
    /// It reaches to the far end of the interval of Agresti and Coull, which is not zero for shares of 0 and 100 %.
    #[must_use]
    pub fn margin_of(&self, whole: &Self) -> Option<f64> {
        self.percent_of(whole)?;
        let samples = whole.samples as f64 + 4.0;
        let share = (self.samples as f64 + 2.0) / samples;
        let shift = (share - self.samples as f64 / whole.samples as f64).abs();
        Some(100.0 * (shift + 2.0 * (share * (1.0 - share) / samples).max(0.0).sqrt()))
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.cpu = self.cpu.saturating_add(more.cpu);
        self.waiting = self.waiting.saturating_add(more.waiting);
        self.samples += more.samples;
        self.waits += more.waits;
        self.at_edge += more.at_edge;
    }

    pub(super) fn add_sample(&mut self, sample: StackSample<'_>) {
        let (time, count) = match sample.is_waiting() {
            true => (&mut self.waiting, &mut self.waits),
            false => (&mut self.cpu, &mut self.samples),
        };
        *time = time.saturating_add(sample.duration());
        *count += 1;
        self.at_edge += u64::from(sample.is_at_edge());
    }
}

/// How threads were sampled, and what could not be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SamplingTotals {
    /// The number of samples of a thread per second on the CPU.
    pub hertz: u32,
    /// The time of all samples.
    pub time: SampledTime,
    /// The number of samples and waits whose stack could not be followed to its root.
    pub truncated: u64,
    /// The number of samples and waits outside all spans.
    pub outside_spans: u64,
    /// The number of samples of pools' threads that are in the span of the thread that waited for them.
    pub pool: u64,
    /// The number of samples that were lost.
    pub lost: u64,
    /// Why nothing or less than requested was sampled, with what to change.
    pub problems: BTreeSet<String>,
}
