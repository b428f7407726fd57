//! A count over the steps of a run.

/// A count over the steps of a run: the least, the most and the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(any(feature = "read", feature = "serde"), derive(serde::Serialize))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[non_exhaustive]
pub struct CountRange {
    /// The least in a step.
    pub min: u64,
    /// The most in a step.
    pub max: u64,
    /// The sum over all steps.
    pub sum: u64,
    /// The number of steps.
    pub steps: u64,
}

impl CountRange {
    /// Adds the count of a step.
    pub(crate) fn add(&mut self, count: u64) {
        self.min = if self.steps == 0 { count } else { self.min.min(count) };
        self.max = self.max.max(count);
        self.sum = self.sum.saturating_add(count);
        self.steps = self.steps.saturating_add(1);
    }

    /// Adds steps in which nothing was counted.
    pub(crate) fn add_nothing(&mut self, steps: u64) {
        if steps > 0 {
            self.min = 0;
            self.steps = self.steps.saturating_add(steps);
        }
    }

    /// Adds the steps of another run.
    pub(crate) fn join(&mut self, other: &Self) {
        if other.steps > 0 {
            self.min = if self.steps == 0 { other.min } else { self.min.min(other.min) };
            self.max = self.max.max(other.max);
            self.sum = self.sum.saturating_add(other.sum);
            self.steps = self.steps.saturating_add(other.steps);
        }
    }

    /// Returns whether the count is the same in all steps.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }

    /// Returns the mean of a step, 0 if there are no steps.
    pub fn mean(&self) -> f64 {
        if self.is_constant() { self.min as f64 } else { self.sum as f64 / self.steps.max(1) as f64 }
    }
}
