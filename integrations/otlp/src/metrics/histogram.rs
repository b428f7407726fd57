//! Values by how large they are.

use super::super::run_trace::StepTrace;
use crate::trace::Timestamp;

/// From 100 µs to 100 s, three bounds for each power of ten.
pub(super) const STEP_BOUNDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    100.0,
];

/// From 1 µs to 1 s.
pub(super) const KERNEL_BOUNDS: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
    0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
];

/// How many values there were of each size.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    /// The upper bounds of all buckets but the last. What is equal to one is below it.
    pub(super) bounds: &'static [f64],
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// By bucket, the latest one since they were taken.
    exemplars: Vec<Option<Exemplar>>,
}

/// A value, and the trace that shows how it came to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub(super) at: Timestamp,
    pub(super) value: f64,
    pub(super) trace: StepTrace,
}

impl Histogram {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        let counts = vec![0; bounds.len() + 1];
        Self { bounds, counts, sum: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY, exemplars: Vec::new() }
    }

    pub(super) fn add(&mut self, value: f64) {
        let bucket = self.bucket(value);
        self.counts[bucket] += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Says what the trace of a value is.
    pub(super) fn explain(&mut self, exemplar: Exemplar) {
        let bucket = self.bucket(exemplar.value);
        self.exemplars.resize(self.counts.len(), None);
        self.exemplars[bucket] = Some(exemplar);
    }

    fn bucket(&self, value: f64) -> usize {
        self.bounds.partition_point(|&bound| bound < value)
    }

    pub(super) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The exemplars, each of which is given once.
    pub(super) fn take_exemplars(&mut self) -> impl Iterator<Item = Exemplar> {
        std::mem::take(&mut self.exemplars).into_iter().flatten()
    }

    /// Begins again.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.bounds);
    }
}
