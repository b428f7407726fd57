//! One value of a sweep, and what was measured with it.

use super::{items::Items, measured::Measured};

/// One value of the setting: what was measured with it, or why nothing was.
pub(super) struct Trial {
    pub(super) value: String,
    /// The items per step, if known.
    pub(super) items: Option<f64>,
    pub(super) result: Result<Measured, String>,
}

impl Trial {
    pub(super) fn new(value: String, result: Result<Measured, String>) -> Self {
        Self { value, items: None, result }
    }

    pub(super) fn set_items(&mut self, items: Option<&Items>) {
        self.items = items.and_then(|items| items.with(&self.value));
    }

    pub(super) fn is_measured(&self) -> bool {
        self.result.is_ok()
    }

    /// The value as a number.
    pub(super) fn number(&self) -> Option<f64> {
        self.value.trim().parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// Items per second, or steps per second if the items per step are unknown.
    pub(super) fn throughput(&self) -> Option<f64> {
        let measured = self.result.as_ref().ok()?;
        let seconds = measured.median.as_secs_f64();
        (seconds > 0.0).then(|| self.items.unwrap_or(1.0) / seconds)
    }
}

/// Sorts trials by value if all values are numbers.
pub(super) fn sort(trials: &mut [Trial]) {
    if trials.iter().all(|trial| trial.number().is_some()) {
        trials.sort_by(|a, b| a.number().partial_cmp(&b.number()).unwrap_or(std::cmp::Ordering::Equal));
    }
}
