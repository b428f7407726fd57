use crate::run_trace::StepTrace;
use kernspan::trace::Timestamp;

/// Seconds from 100 µs to 100 s, three bounds for each power of ten.
pub(super) const STEP_BOUNDS: &[f64] = &[
    0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0,
    100.0,
];

/// Seconds from 1 µs to 1 s.
pub(super) const KERNEL_BOUNDS: &[f64] = &[
    0.000_001, 0.000_002, 0.000_005, 0.000_01, 0.000_02, 0.000_05, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01,
    0.02, 0.05, 0.1, 0.2, 0.5, 1.0,
];

/// A histogram with explicit bounds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    /// The inclusive upper bounds of all buckets but the last.
    pub(super) bounds: &'static [f64],
    pub(super) counts: Vec<u64>,
    pub(super) sum: f64,
    /// Not finite if it is not known.
    pub(super) min: f64,
    /// Not finite if it is not known.
    pub(super) max: f64,
    /// The latest exemplar of each bucket since they were taken.
    exemplars: Vec<Option<Exemplar>>,
}

/// A value, and where to look for what it is of.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Exemplar {
    pub(super) at: Timestamp,
    pub(super) value: f64,
    /// The trace of its step, or of its request.
    pub(super) trace: Option<StepTrace>,
    /// A file that has its trace.
    pub(super) file: Option<String>,
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

    /// Adds an exemplar for a value that was added.
    pub(super) fn add_exemplar(&mut self, exemplar: Exemplar) {
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

    pub(super) fn has_exemplars(&self) -> bool {
        self.exemplars.iter().any(Option::is_some)
    }

    /// Returns each exemplar once.
    pub(super) fn take_exemplars(&mut self) -> impl Iterator<Item = Exemplar> {
        std::mem::take(&mut self.exemplars).into_iter().flatten()
    }

    /// Returns the values that were added since this histogram was a copy of `earlier`, with its exemplars. The least
    /// and the greatest of them are not known.
    #[cfg(feature = "serving")]
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut since = Self::new(self.bounds);
        for (count, (now, before)) in since.counts.iter_mut().zip(self.counts.iter().zip(&earlier.counts)) {
            *count = now.saturating_sub(*before);
        }
        since.sum = self.sum - earlier.sum;
        since.exemplars.clone_from(&self.exemplars);
        since
    }

    /// Empties the histogram.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.bounds);
    }
}
