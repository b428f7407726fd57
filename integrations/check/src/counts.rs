//! Counts of a step, which are the same in every run of the same program.

use kernspan::report::units;
use serde::{Deserialize, Serialize};
use std::{cmp::Ordering, fmt};

/// A count of a step that does not depend on the speed of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CountKind {
    /// Calls of spans.
    Calls,
    /// Kernel launches.
    Kernels,
    /// Memory copies to, from or on GPUs.
    Copies,
    /// Bytes of these copies.
    CopiedBytes,
    /// Fills of GPU memory.
    Fills,
    /// Allocations of GPU memory.
    Allocations,
    /// Bytes of these allocations.
    AllocatedBytes,
    /// Floating-point operations, including those of nested spans.
    Flops,
    /// Allocations on the heap, if they were [counted](kernspan::Allocator).
    HeapAllocations,
    /// Bytes of these allocations.
    HeapBytes,
}

impl CountKind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Calls,
        Self::Kernels,
        Self::Copies,
        Self::CopiedBytes,
        Self::Fills,
        Self::Allocations,
        Self::AllocatedBytes,
        Self::Flops,
        Self::HeapAllocations,
        Self::HeapBytes,
    ];

    /// Returns the name used in files and options, such as `copied_bytes`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Kernels => "kernels",
            Self::Copies => "copies",
            Self::CopiedBytes => "copied_bytes",
            Self::Fills => "fills",
            Self::Allocations => "allocations",
            Self::AllocatedBytes => "allocated_bytes",
            Self::Flops => "flops",
            Self::HeapAllocations => "heap_allocations",
            Self::HeapBytes => "heap_bytes",
        }
    }

    /// Returns the noun used in sentences, such as `kernel launch` or, in the plural, `kernel launches`.
    pub fn noun(self, several: bool) -> &'static str {
        match (self, several) {
            (Self::Calls, false) => "call",
            (Self::Calls, true) => "calls",
            (Self::Kernels, false) => "kernel launch",
            (Self::Kernels, true) => "kernel launches",
            (Self::Copies, false) => "copy",
            (Self::Copies, true) => "copies",
            (Self::CopiedBytes, false) => "copied byte",
            (Self::CopiedBytes, true) => "copied bytes",
            (Self::Fills, false) => "fill",
            (Self::Fills, true) => "fills",
            (Self::Allocations, false) => "allocation",
            (Self::Allocations, true) => "allocations",
            (Self::AllocatedBytes, false) => "allocated byte",
            (Self::AllocatedBytes, true) => "allocated bytes",
            (Self::Flops, false) => "floating-point operation",
            (Self::Flops, true) => "floating-point operations",
            (Self::HeapAllocations, false) => "heap allocation",
            (Self::HeapAllocations, true) => "heap allocations",
            (Self::HeapBytes, false) => "byte allocated on the heap",
            (Self::HeapBytes, true) => "bytes allocated on the heap",
        }
    }

    /// Whether it is a count of the heap. A few steps of a run differ: one grows a map, another writes a line. So only
    /// the middle half of the steps of each window counts, by this count.
    pub(crate) fn is_of_heap(self) -> bool {
        matches!(self, Self::HeapAllocations | Self::HeapBytes)
    }

    /// Formats amounts, such as those before and after, with the same number of decimals: none if all are whole
    /// numbers, otherwise enough to tell different ones apart.
    ///
    /// ```
    /// use kernspan_check::CountKind;
    ///
    /// assert_eq!(CountKind::Kernels.amounts([18.0, 20.0]), ["18", "20"]);
    /// assert_eq!(CountKind::Kernels.amounts([17.98, 18.0]), ["17.98", "18.00"]);
    /// assert_eq!(CountKind::CopiedBytes.amounts([65536.0, 0.0]), ["64.0 KiB", "0 B"]);
    /// ```
    pub fn amounts<const N: usize>(self, amounts: [f64; N]) -> [String; N] {
        const MOST: usize = 3;
        let with = |decimals: usize| amounts.map(|amount| format!("{amount:.decimals$}"));
        let is_clear = |texts: &[String; N]| {
            let mut pairs = (0..N).flat_map(|one| (0..one).map(move |other| (one, other)));
            pairs.all(|(one, other)| amounts[one] == amounts[other] || texts[one] != texts[other])
        };
        match self {
            Self::CopiedBytes | Self::AllocatedBytes | Self::HeapBytes => {
                amounts.map(|amount| units::bytes(amount.round() as u64))
            }
            Self::Flops => amounts.map(|amount| units::count(amount.round() as u64).unwrap_or_else(|| "0".to_owned())),
            _ if amounts.iter().all(|amount| amount.fract() == 0.0) => with(0),
            _ => (1..MOST).map(with).find(is_clear).unwrap_or_else(|| with(MOST)),
        }
    }
}

/// A count over the steps of a run: the minimum, the maximum and the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CountRange {
    /// The minimum in a step.
    pub min: u64,
    /// The maximum in a step.
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

    /// Returns the count over the steps of all these runs.
    pub(crate) fn joined(runs: impl IntoIterator<Item = Self>) -> Self {
        runs.into_iter().filter(|run| run.steps > 0).fold(Self::default(), |all, run| Self {
            min: if all.steps == 0 { run.min } else { all.min.min(run.min) },
            max: all.max.max(run.max),
            sum: all.sum.saturating_add(run.sum),
            steps: all.steps.saturating_add(run.steps),
        })
    }

    /// Returns whether the two ranges have no value in common.
    pub(crate) fn is_apart_from(&self, other: &Self) -> bool {
        self.max < other.min || other.max < self.min
    }

    /// Returns whether the count is the same in all steps.
    pub fn is_constant(&self) -> bool {
        self.min == self.max
    }

    /// Returns the mean per step, 0 if there are no steps.
    pub fn mean(&self) -> f64 {
        if self.is_constant() { self.min as f64 } else { self.sum as f64 / self.steps.max(1) as f64 }
    }
}

/// A count of a step before and after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
    pub(crate) fn of(
        kind: CountKind,
        before: impl Iterator<Item = CountRange>,
        after: impl Iterator<Item = CountRange>,
    ) -> Option<Self> {
        let (before, after) = (CountRange::joined(before), CountRange::joined(after));
        before.is_apart_from(&after).then_some(Self { kind, before, after })
    }

    /// Returns the difference of the means per step.
    pub fn difference(&self) -> f64 {
        self.after.mean() - self.before.mean()
    }

    /// Returns whether it has increased.
    pub fn is_more(&self) -> bool {
        self.after.min > self.before.max
    }

    /// Returns whether more or less is done, if no count speaks against that.
    pub(crate) fn work(changes: &[Self]) -> Option<Ordering> {
        let has_more = changes.iter().any(Self::is_more);
        let has_less = changes.iter().any(|change| !change.is_more());
        (has_more != has_less).then_some(if has_more { Ordering::Greater } else { Ordering::Less })
    }

    /// Returns the difference as a multiple of the count before; infinite if there was none.
    pub fn ratio(&self) -> f64 {
        self.difference() / self.before.mean()
    }

    /// Formats the difference for a table: `+12 launches`, `-40 B copied`.
    pub fn signed(&self) -> String {
        let difference = self.difference();
        let is_one = difference.abs() == 1.0;
        let noun = match self.kind {
            CountKind::Kernels if is_one => "launch",
            CountKind::Kernels => "launches",
            CountKind::CopiedBytes => "copied",
            CountKind::AllocatedBytes => "allocated",
            CountKind::HeapBytes => "on the heap",
            CountKind::Flops => "FLOPs",
            kind => kind.noun(!is_one),
        };
        let [amount] = self.kind.amounts([difference.abs()]);
        format!("{}{amount} {noun}", if difference < 0.0 { '-' } else { '+' })
    }
}

impl fmt::Display for CountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for CountChange {
    /// Writes `1 more kernel launch a step (12 instead of 11)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let difference = self.difference();
        let word = if difference < 0.0 { "fewer" } else { "more" };
        // Means of varying counts are not exact.
        let several = (difference.abs() - 1.0).abs() > 1e-9;
        let [amount, after, before] = self.kind.amounts([difference.abs(), self.after.mean(), self.before.mean()]);
        let noun = match self.kind {
            CountKind::CopiedBytes => "copied",
            CountKind::AllocatedBytes => "allocated",
            CountKind::HeapBytes => "allocated on the heap",
            kind => kind.noun(several),
        };
        write!(f, "{amount} {word} {noun} a step ({after} instead of {before})")
    }
}

#[cfg(test)]
mod tests {
    use super::CountKind;

    #[test]
    fn amounts_that_differ_look_different() {
        let of = |one, other| CountKind::Kernels.amounts([one, other]);
        assert_eq!(of(18.0, 20.0), ["18", "20"]);
        assert_eq!(of(3.5, 3.0), ["3.5", "3.0"]);
        assert_eq!(of(17.98, 18.0), ["17.98", "18.00"]);
        assert_eq!(of(2.5, 2.5), ["2.5", "2.5"]);
        assert_eq!(of(18.0, 18.000_01), ["18.000", "18.000"]);
        assert_eq!(CountKind::CopiedBytes.amounts([65536.0, 0.0]), ["64.0 KiB", "0 B"]);
        assert_eq!(CountKind::Flops.amounts([2e9, 0.0]), ["2.00 G", "0"]);
    }
}
