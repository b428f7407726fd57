//! Changes of counts.

use crate::{
    analysis::CountKind,
    report::{baseline::CountRange, units},
};
use std::fmt;

/// A count of a step before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CountChange {
    /// The kind of count.
    pub kind: CountKind,
    /// The count before, over the steps of all runs.
    pub before: CountRange,
    /// The count after.
    pub after: CountRange,
}

impl CountChange {
    /// Returns the change between the runs of two sides, if there is any.
    ///
    /// A count that is the same in all steps of both sides is compared exactly. One that varies has changed if the
    /// ranges of both sides have no value in common.
    pub(super) fn of(
        kind: CountKind,
        before: impl Iterator<Item = CountRange>,
        after: impl Iterator<Item = CountRange>,
    ) -> Option<Self> {
        let (before, after) = (joined(before), joined(after));
        let change = Self { kind, before, after };
        (before.max < after.min || after.max < before.min).then_some(change)
    }

    /// Returns the difference of the means of a step.
    pub fn difference(&self) -> f64 {
        self.after.mean() - self.before.mean()
    }

    /// Returns whether there is more of it than before.
    pub fn is_more(&self) -> bool {
        self.after.min > self.before.max
    }

    /// Returns the difference as a multiple of the count before; infinite if there was none.
    pub fn ratio(&self) -> f64 {
        self.difference() / self.before.mean()
    }
}

/// Returns a count over the steps of all runs of a side.
pub(super) fn joined(runs: impl Iterator<Item = CountRange>) -> CountRange {
    runs.fold(CountRange::default(), |mut all, run| {
        all.join(&run);
        all
    })
}

impl fmt::Display for CountChange {
    /// Writes `1 more kernel launch a step (12 instead of 11)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let difference = self.difference();
        let word = if difference < 0.0 { "fewer" } else { "more" };
        let several = (difference.abs() - 1.0).abs() > 1e-9;
        let [amount, after, before] =
            units::amounts(self.kind, [difference.abs(), self.after.mean(), self.before.mean()]);
        let noun = match self.kind {
            CountKind::CopiedBytes => "copied",
            CountKind::AllocatedBytes => "allocated",
            kind => kind.noun(several),
        };
        write!(f, "{amount} {word} {noun} a step ({after} instead of {before})")
    }
}
