//! The table of GPU time by kernel: the work of all windows, added up by name and shape, and its rows.

use super::{
    labels::{self, Label, Labels, Shapes, ShapesId, argument_shapes},
    table::Table,
    totals::MeanOccupancy,
    units,
    view::{View, table_of_rows},
};
use crate::{
    analysis::percent_of,
    trace::{Span, Trace, Work},
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{borrow::Cow, fmt::Write, time::Duration};

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

/// A row of [`Kernels`]: the kernels of one name, or the copies between two kinds of memory, or the fills
/// of one.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelAverage {
    /// The kernel's name, or one such as `Memcpy HtoD (Pageable -> Device)`; the name of the group, if grouped.
    pub name: String,
    /// The number of different names of kernels and copies in the row: 1, unless grouped.
    pub names: u64,
    /// The shapes of the arguments of the operation that launched the kernel, if grouped by shape and known.
    pub shapes: Option<String>,
    /// The size of the matrix product that launched the kernel, such as `64x512x512`, if grouped by shape and stated by
    /// the span: see [`convention::GEMM`](crate::trace::convention::GEMM).
    pub gemm: Option<String>,
    /// The number of runs.
    pub calls: u64,
    /// The time of all runs. Runs at the same time are counted in full.
    pub total: Duration,
    /// `total` in percent of the time of all GPU work.
    pub percent: f64,
    /// The mean time of a run.
    pub average: Duration,
    /// The standard deviation of the time of a run, of a sample: by `calls - 1`. It is zero for a single run.
    pub deviation: Duration,
    /// The time of the shortest run.
    pub shortest: Duration,
    /// The time of the longest run.
    pub longest: Duration,
    /// The mean estimated [`Occupancy`](crate::trace::Occupancy) in percent, weighted by duration, if known.
    pub occupancy: Option<f64>,
    /// The most registers that a thread of a run had; `None` for copies and fills.
    pub registers: Option<u16>,
    /// Bytes copied or filled; 0 for kernels.
    pub bytes: u64,
    /// Bytes copied or filled per second of `total`; `None` for kernels.
    pub bytes_per_second: Option<f64>,
}

/// Returns the name of the row that a kernel's name belongs to.
type GroupName = fn(&str) -> Cow<'_, str>;

/// The identity of a row.
type KernelRowKey<'a> = (Cow<'a, str>, Option<Shapes<'a>>);

/// The totals of a row.
#[derive(Default)]
struct KernelRowTotals<'a> {
    tally: KernelTally,
    names: FxHashSet<&'a str>,
}

/// The GPU time of all windows, by the name of the work and the shapes of the operation that launched it.
///
/// A window may have a million pieces of work. For each, only the name and the tally are looked up; shapes are written
/// as text once for each span that launched any work.
#[derive(Debug, Default)]
pub(super) struct KernelTimes {
    labels: Labels,
    tallies: FxHashMap<Label, KernelTally>,
    /// The number of tallies that have shapes.
    shaped: usize,
}

/// Times and counts, added up over kernels, copies or fills of one name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KernelTally {
    pub(super) calls: u64,
    pub(super) total: Duration,
    /// The sum of the squares of the times, in square nanoseconds.
    pub(super) squares: u128,
    pub(super) shortest: Option<Duration>,
    pub(super) longest: Duration,
    pub(super) occupancy: MeanOccupancy,
    /// The most registers of a thread; `None` for copies and fills.
    pub(super) registers: Option<u16>,
    pub(super) bytes: u64,
}

/// A cache of the shapes that apply to each span. The outer `None` is a span that was not looked up yet.
struct SpanShapes(Vec<Option<Option<ShapesId>>>);

impl<'a> Kernels<'a> {
    /// The number of rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The number of names, and of pairs of a name and a shape, that have rows of their own.
    pub const NAMES: usize = labels::NAMES;
    /// The name of the row for all work past the first [`Self::NAMES`] names.
    pub const OTHERS: &'static str = labels::OTHERS;

    pub(super) fn new(times: &'a KernelTimes) -> Self {
        Self { times, group: None, by_shape: false, view: View { has_kernels: true, ..View::new(Self::LIMIT) } }
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
        self.view.has_kernels = false;
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

    fn all_rows(&self) -> Vec<KernelAverage> {
        let mut groups: FxHashMap<KernelRowKey<'_>, KernelRowTotals<'_>> = FxHashMap::default();
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
        let row = |((name, shapes), row): (KernelRowKey<'_>, KernelRowTotals<'_>)| KernelAverage {
            name: name.into_owned(),
            names: row.names.len() as u64,
            shapes: shapes.map(|shapes| shapes.arguments.to_owned()),
            gemm: shapes.and_then(|shapes| shapes.gemm).map(str::to_owned),
            ..KernelAverage::of(&row.tally, all)
        };
        let mut rows: Vec<_> = groups.into_iter().map(row).collect();
        // Ties by name and shape, so that the same run prints the same table.
        rows.sort_unstable_by(|a, b| {
            let name = (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            b.total.cmp(&a.total).then(name)
        });
        rows
    }
}

table_of_rows!(Kernels, KernelAverage, "no GPU work was recorded");

impl KernelAverage {
    /// Returns a row without names and shapes. `all` is the time of all GPU work.
    pub(super) fn of(tally: &KernelTally, all: Duration) -> Self {
        let KernelTally { calls, total, shortest, longest, occupancy, registers, bytes, .. } = *tally;
        let seconds = total.as_secs_f64();
        Self {
            calls,
            total,
            percent: percent_of(total, all),
            average: total.div_f64(calls.max(1) as f64),
            deviation: tally.deviation(),
            shortest: shortest.unwrap_or_default(),
            longest,
            occupancy: occupancy.percent(),
            registers,
            bytes,
            bytes_per_second: (bytes > 0 && seconds > 0.0).then(|| bytes as f64 / seconds),
            ..Self::default()
        }
    }

    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Kernel", rows, |row| row.name.clone());
        table.number("CUDA %", rows, |row| units::percent(row.percent)).droppable(8);
        table.number("CUDA total", rows, |row| units::column_time(row.total));
        table.number("Average", rows, |row| units::column_time(row.average));
        table.number("Shortest", rows, |row| units::column_time(row.shortest)).droppable(4);
        table.number("Longest", rows, |row| units::column_time(row.longest)).droppable(3);
        table.number("Occupancy", rows, |row| row.occupancy.map(units::percent)).droppable(7);
        table.number("Registers", rows, |row| row.registers.map(|count| count.to_string())).droppable(2);
        if rows.iter().any(|row| row.bytes > 0) {
            table.number("Bytes", rows, |row| (row.bytes > 0).then(|| units::bytes(row.bytes))).droppable(1);
            let rate = |row: &Self| units::or_none(row.bytes_per_second.map(|rate| format!("{:.2}", rate / 1e9)));
            table.number("GB/s", rows, rate).droppable(6);
        }
        table.number("# of Calls", rows, |row| row.calls.to_string());
        if rows.iter().any(|row| row.names > 1) {
            table.number("# of Names", rows, |row| row.names.to_string()).droppable(5);
        }
        table.text("Input Shapes", rows, |row| row.shapes.clone());
        table.text("m×n×k", rows, |row| row.gemm.clone());
        table
    }
}

impl KernelTimes {
    /// Adds the GPU work of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.work().len() == 0 {
            return;
        }
        let mut span_shapes = SpanShapes(vec![None; trace.spans().len()]);
        let mut text = String::new();
        for work in trace.work() {
            let name = match work.kernel() {
                Some(kernel) => self.labels.name(&kernel.name),
                None => {
                    text.clear();
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{}", work.name());
                    self.labels.name(&text)
                }
            };
            // Work past the limit of names is one row, whatever its shapes.
            let shapes = name.and(work.span()).and_then(|span| span_shapes.of(span, &mut self.labels));
            self.tally(Label { name, shapes }).add_work(trace, work);
        }
    }

    /// Returns the tally with this label. It has no shapes if there are too many tallies with shapes already.
    fn tally(&mut self, mut label: Label) -> &mut KernelTally {
        if label.shapes.is_some() && !self.tallies.contains_key(&label) {
            if self.shaped < labels::NAMES {
                self.shaped += 1;
            } else {
                label.shapes = None;
            }
        }
        self.tallies.entry(label).or_default()
    }

    /// Returns whether there was no GPU work.
    pub(super) fn is_empty(&self) -> bool {
        self.tallies.is_empty()
    }

    /// Returns the name, the shapes and the tally of all work, in no order. The name is `None` past the limit of names.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Option<&str>, Option<Shapes<'_>>, &KernelTally)> {
        self.tallies.iter().map(|(label, tally)| {
            let (name, shapes) = self.labels.resolve(*label);
            (name, shapes, tally)
        })
    }
}

impl SpanShapes {
    /// Returns the shapes of the innermost span, from this one outwards, that states any.
    fn of(&mut self, span: Span<'_>, labels: &mut Labels) -> Option<ShapesId> {
        let (mut shapes, mut unknown) = (None, 0);
        for span in span.stack() {
            if let Some(known) = self.0[span.id().index()] {
                shapes = known;
                break;
            }
            unknown += 1;
            if let Some(arguments) = argument_shapes(span.fields()) {
                shapes = labels.shapes(&arguments, span.fields().op().gemm());
                break;
            }
        }
        for span in span.stack().take(unknown) {
            self.0[span.id().index()] = Some(shapes);
        }
        shapes
    }
}

impl KernelTally {
    fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        let time = work.duration();
        self.calls += 1;
        self.total += time;
        self.squares = self.squares.saturating_add(square(time));
        self.shortest = Some(self.shortest.map_or(time, |shortest| shortest.min(time)));
        self.longest = self.longest.max(time);
        self.occupancy.add_work(trace, work);
        self.registers = self.registers.max(work.kernel().map(|kernel| kernel.registers));
        self.bytes = self.bytes.saturating_add(work.bytes());
    }

    /// Adds another tally.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.squares = self.squares.saturating_add(other.squares);
        self.shortest = self.shortest.into_iter().chain(other.shortest).min();
        self.longest = self.longest.max(other.longest);
        self.occupancy.add(&other.occupancy);
        self.registers = self.registers.max(other.registers);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// Returns the standard deviation of a sample, by `calls - 1`; zero for a single run.
    pub(super) fn deviation(&self) -> Duration {
        // Integers, as the difference of two large sums of floating-point numbers would be mostly error.
        let spread = self.squares.saturating_mul(self.calls.into()).saturating_sub(square(self.total));
        let pairs = self.calls as f64 * self.calls.saturating_sub(1) as f64;
        if pairs > 0.0 { Duration::from_nanos((spread as f64 / pairs).sqrt().round() as u64) } else { Duration::ZERO }
    }
}

/// Returns the square of a duration's nanoseconds.
fn square(duration: Duration) -> u128 {
    duration.as_nanos().saturating_mul(duration.as_nanos())
}

#[cfg(test)]
mod tests;
