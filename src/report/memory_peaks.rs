//! The tables of memory peaks, one for each GPU.

use super::{
    highest_peaks::HighestPeaks,
    memory_peak::MemoryPeak,
    view::{View, view_methods},
};
use std::fmt;

/// The memory peak of each GPU over the whole run, as tables of the spans that had allocated the memory.
///
/// Refine it with its methods, then print it or take its [`peaks`](Self::peaks).
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for peak in report.memory().peaks() {
///     let largest = peak.owners.first().map_or("nothing", |owner| owner.name.as_str());
///     println!("GPU {}: {} bytes, most of them of {largest}", peak.device, peak.in_use);
/// }
/// println!("{}", report.memory().limit(20));
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its peaks are taken"]
#[derive(Clone, Copy, Debug)]
pub struct MemoryPeaks<'a> {
    highest: &'a HighestPeaks,
    view: View,
}

impl<'a> MemoryPeaks<'a> {
    /// The number of owners of a GPU's memory that are shown by default.
    pub const LIMIT: usize = 10;

    pub(super) fn new(highest: &'a HighestPeaks) -> Self {
        Self { highest, view: View::new(Self::LIMIT) }
    }

    view_methods!("Limits the number of owners that are printed for each GPU. By default, [`Self::LIMIT`].");

    /// Returns the highest peak of each GPU that allocated or freed memory, with all owners.
    pub fn peaks(&self) -> impl ExactSizeIterator<Item = &'a MemoryPeak> {
        self.highest.iter()
    }
}

impl fmt::Display for MemoryPeaks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peaks().len() == 0 {
            return writeln!(f, "no GPU memory was recorded");
        }
        self.peaks().try_for_each(|peak| peak.write_table(f, self.view))
    }
}

#[cfg(test)]
mod tests;
