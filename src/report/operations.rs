//! The table of frameworks' operations.

use super::{
    limits,
    operation_average::{OperationAverage, SortOperationsBy},
    operation_times::OperationTimes,
    table::Table,
    view::{View, view_methods},
};
use std::fmt;

/// A table of the [operations](crate::trace::Operation) that frameworks were asked for over the whole run, with their
/// GPU time.
///
/// Refine it with its methods, then print it or take its [`rows`](Self::rows).
///
/// # How time is counted
///
/// A framework may do several operations in one kernel, and one operation in several kernels. The trace knows the
/// operations that a kernel was launched for: those of its [batch](crate::framework::Origin::in_batch). So the time of
/// a kernel is counted in one of two ways:
///
/// - *Alone*, if all operations of the batch have the same name. Alone times of different names add up.
/// - *Shared*, if the batch has operations of several names. The time counts for each of these names in full, because
///   it is not known how much of it each took. Shared times of different names do not add up.
///
/// If grouped by shape, a name with one shape and the same name with another shape are two names.
///
/// Copies and fills of memory that were launched for a batch count as kernels do, but are not in
/// [`kernels`](OperationAverage::kernels). The table does not have the time of work that was launched in no batch, or
/// in a batch without operations.
///
/// At most [`Operations::NAMES`] names have rows of their own, and the rest is one row, [`Operations::OTHERS`]. After
/// as many rows, further shapes of a name are one row.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// use kernspan::report::SortOperationsBy;
///
/// for row in report.operations().sort_by(SortOperationsBy::Alone).limit(3).rows() {
///     println!("{} took {:?} by itself, and was in kernels of {:?}", row.name, row.alone, row.shared);
/// }
/// println!("{}", report.operations().group_by_shape(true));
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Operations<'a> {
    times: &'a OperationTimes,
    sort_by: SortOperationsBy,
    by_shape: bool,
    view: View,
}

impl<'a> Operations<'a> {
    /// The number of rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The number of names, and of pairs of a name and a shape, that have rows of their own.
    pub const NAMES: usize = limits::NAMES;
    /// The name of the row for all operations past the first [`Self::NAMES`] names.
    pub const OTHERS: &'static str = limits::OTHERS;

    pub(super) fn new(times: &'a OperationTimes) -> Self {
        let view = View::new(Self::LIMIT);
        Self { times, sort_by: SortOperationsBy::default(), by_shape: false, view }
    }

    /// Sorts the rows by a column. By default, [`SortOperationsBy::Gpu`].
    pub fn sort_by(mut self, sort_by: SortOperationsBy) -> Self {
        self.sort_by = sort_by;
        self
    }

    /// Sets whether operations of one name with different argument shapes are different rows. By default, they are not.
    pub fn group_by_shape(mut self, group: bool) -> Self {
        self.by_shape = group;
        self
    }

    view_methods!("Limits the number of rows. By default, [`Self::LIMIT`].");

    /// Returns the rows, sorted and limited.
    #[must_use]
    pub fn rows(&self) -> Vec<OperationAverage> {
        self.view.limited(self.all_rows())
    }

    /// Returns the table of these rows as it is printed, for programs that print it in another format.
    pub fn table(&self) -> Table {
        self.view.table(&self.all_rows(), OperationAverage::table)
    }

    fn all_rows(&self) -> Vec<OperationAverage> {
        let rows = self.times.iter(self.by_shape);
        let mut rows: Vec<_> = rows.map(|(name, shapes, tally)| OperationAverage::of(name, shapes, tally)).collect();
        // Ties by calls, name and shape, so that the same run prints the same table.
        rows.sort_by(|a, b| {
            let name = || (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            self.sort_by.order(a, b).then(b.calls.cmp(&a.calls)).then_with(name)
        });
        rows
    }
}

impl fmt::Display for Operations<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.all_rows();
        if self.view.shown(&rows).is_empty() {
            return writeln!(f, "no operations were recorded: no framework reported any");
        }
        self.view.write(f, &rows, OperationAverage::table)
    }
}

#[cfg(test)]
mod tests;
