//! The table of GPU time by kernel.

use super::{
    kernel_average::KernelAverage,
    kernel_times::{KernelTally, KernelTimes},
    limits,
    shapes::Shapes,
    table::Table,
    view::{View, view_methods},
};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    fmt,
};

/// A table of GPU time by kernel over the whole run, longest first. Copies and fills of memory are rows, too.
///
/// Refine it with its methods, then print it or take its [`rows`](Self::rows). At most [`Kernels::NAMES`] names have
/// rows of their own, and the rest is one row, [`Kernels::OTHERS`]. After as many pairs of a name and a shape, further
/// shapes of a name are one row.
///
/// ```
/// # fn show(report: &kernspan::Report) {
/// for kernel in report.kernels().limit(3).rows() {
///     println!("{} took {:.1} % of the GPU's time", kernel.name, kernel.percent);
/// }
/// println!("{}", report.kernels().limit(20));
/// # }
/// ```
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Kernels<'a> {
    times: &'a KernelTimes,
    group: Option<GroupName>,
    by_shape: bool,
    view: View,
}

/// Returns the name of the row that a kernel's name belongs to.
type GroupName = fn(&str) -> Cow<'_, str>;

/// The identity of a row.
type RowKey<'a> = (Cow<'a, str>, Option<Shapes<'a>>);

/// The totals of a row.
#[derive(Default)]
struct RowTotals<'a> {
    tally: KernelTally,
    names: HashSet<&'a str>,
}

impl<'a> Kernels<'a> {
    /// The number of rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The number of names, and of pairs of a name and a shape, that have rows of their own.
    pub const NAMES: usize = limits::NAMES;
    /// The name of the row for all work past the first [`Self::NAMES`] names.
    pub const OTHERS: &'static str = limits::OTHERS;

    pub(super) fn new(times: &'a KernelTimes) -> Self {
        Self { times, group: None, by_shape: false, view: View::new(Self::LIMIT) }
    }

    /// Makes one row of all names for which `group` returns the same text, which is the name of the row. By default,
    /// each name is a row.
    ///
    /// `group` is called for the names of kernels, copies and fills, but not for [`Self::OTHERS`].
    ///
    /// ```
    /// use std::borrow::Cow;
    ///
    /// /// `affine_f32` and `affine_f16` are both `affine`.
    /// fn without_type(name: &str) -> Cow<'_, str> {
    ///     name.rsplit_once('_').map_or(name, |(operation, _)| operation).into()
    /// }
    ///
    /// # fn show(report: &kernspan::Report) {
    /// println!("{}", report.kernels().group_by(without_type));
    /// # }
    /// ```
    pub fn group_by(mut self, group: fn(&str) -> Cow<'_, str>) -> Self {
        self.group = Some(group);
        self
    }

    /// Sets whether a kernel that was launched in operations of different shapes has a row for each. By default, it has
    /// one row.
    ///
    /// The shapes are those of the innermost span around the launch that states any: see
    /// [`convention::SHAPE`](crate::trace::convention::SHAPE).
    pub fn group_by_shape(mut self, group: bool) -> Self {
        self.by_shape = group;
        self
    }

    view_methods!("Limits the number of rows. By default, [`Self::LIMIT`].");

    /// Returns the rows, longest first, limited.
    #[must_use]
    pub fn rows(&self) -> Vec<KernelAverage> {
        self.view.limited(self.all_rows())
    }

    /// Returns the table of these rows as it is printed, for programs that print it in another format.
    pub fn table(&self) -> Table {
        self.view.table(&self.all_rows(), KernelAverage::table)
    }

    fn all_rows(&self) -> Vec<KernelAverage> {
        let mut groups: HashMap<RowKey<'_>, RowTotals<'_>> = HashMap::new();
        for (name, shapes, tally) in self.times.iter() {
            let group = match (name, self.group) {
                (Some(name), Some(group)) => group(name),
                (name, _) => Cow::Borrowed(name.unwrap_or(Self::OTHERS)),
            };
            let row = groups.entry((group, shapes.filter(|_| self.by_shape))).or_default();
            row.tally.add(tally);
            row.names.insert(name.unwrap_or(Self::OTHERS));
        }
        let all = groups.values().map(|row| row.tally.total).sum();
        let row = |((name, shapes), row): (RowKey<'_>, RowTotals<'_>)| KernelAverage {
            name: name.into_owned(),
            names: row.names.len() as u64,
            shapes: shapes.map(|shapes| shapes.arguments.to_owned()),
            gemm: shapes.and_then(|shapes| shapes.gemm).map(str::to_owned),
            ..KernelAverage::of(&row.tally, all)
        };
        let mut rows: Vec<_> = groups.into_iter().map(row).collect();
        // Ties by name and shape, so that the same run prints the same table.
        rows.sort_by(|a, b| {
            let name = (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            b.total.cmp(&a.total).then(name)
        });
        rows
    }
}

impl fmt::Display for Kernels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.all_rows();
        if self.view.shown(&rows).is_empty() {
            return writeln!(f, "no GPU work was recorded");
        }
        self.view.write(f, &rows, KernelAverage::table)
    }
}

#[cfg(test)]
mod tests;
