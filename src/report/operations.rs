//! The table of frameworks' operations: their GPU time of all windows, added up by name and shape, and its rows.

use super::{
    labels::{self, Label, Labels, Shapes, argument_shapes},
    table::Table,
    units,
    view::{View, table_of_rows},
};
use crate::trace::{Operation, OperationId, Trace};
use rustc_hash::FxHashMap;
use std::{cmp::Ordering, time::Duration};

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

/// The column by which the rows of [`Operations`] are sorted, largest value first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortOperationsBy {
    /// GPU time, alone and shared.
    #[default]
    Gpu,
    /// GPU time of kernels that did nothing else.
    Alone,
    /// Number of calls.
    Calls,
    /// Floating-point operations.
    Flops,
    /// The name, in alphabetical order.
    Name,
}

/// A row of [`Operations`]: the operations of one name, or of one name and shape if grouped by shape.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct OperationAverage {
    /// The name of the operations.
    pub name: String,
    /// The shapes of the arguments, if grouped by shape and known.
    pub shapes: Option<String>,
    /// The size of the matrix product, such as `64x512x512`, if grouped by shape and stated by the operation.
    pub gemm: Option<String>,
    /// The number of times a framework was asked for it.
    pub calls: u64,
    /// Floating-point operations of all calls, if the operations state them: see
    /// [`convention::FLOPS`](crate::trace::convention::FLOPS).
    pub flops: u64,
    /// Time of GPU work that did only operations of this row. Work that ran at the same time is counted in full.
    pub alone: Duration,
    /// Time of GPU work that did operations of this row and of others. It counts in full for the others, too.
    pub shared: Duration,
    /// The number of kernels that did operations of this row, alone or with others.
    pub kernels: u64,
}

/// The GPU time of the operations of all windows, by their name and by their name and shapes.
///
/// A window may have a million calls of operations. The fields of an operation are read once for all its calls, and the
/// GPU time of a batch is added up once for all its operations.
#[derive(Debug, Default)]
pub(super) struct OperationTimes {
    labels: Labels,
    by_name: Tallies,
    /// These cannot be summed up to `by_name`: the time of a kernel that did one operation in two shapes is alone by
    /// name and shared by shape.
    by_shape: Tallies,
}

/// Times and counts, added up over calls of operations.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperationTally {
    pub(super) calls: u64,
    pub(super) flops: u64,
    pub(super) alone: Duration,
    pub(super) shared: Duration,
    pub(super) kernels: u64,
}

/// A tally for each label.
#[derive(Debug, Default)]
struct Tallies {
    indices: FxHashMap<Label, usize>,
    tallies: Vec<(Label, OperationTally)>,
}

/// The indices of the tallies of an operation.
#[derive(Clone, Copy, Debug)]
struct TallyIndices {
    by_name: usize,
    by_shape: usize,
}

/// The GPU work of a batch.
#[derive(Clone, Copy, Debug, Default)]
struct BatchWork {
    time: Duration,
    kernels: u64,
}

impl<'a> Operations<'a> {
    /// The number of rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The number of names, and of pairs of a name and a shape, that have rows of their own.
    pub const NAMES: usize = labels::NAMES;
    /// The name of the row for all operations past the first [`Self::NAMES`] names.
    pub const OTHERS: &'static str = labels::OTHERS;

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

    fn all_rows(&self) -> Vec<OperationAverage> {
        let rows = self.times.iter(self.by_shape);
        let mut rows: Vec<_> = rows.map(|(name, shapes, tally)| OperationAverage::of(name, shapes, tally)).collect();
        // Ties by calls, name and shape, so that the same run prints the same table.
        rows.sort_unstable_by(|a, b| {
            let name = || (&a.name, &a.shapes, &a.gemm).cmp(&(&b.name, &b.shapes, &b.gemm));
            self.sort_by.order(a, b).then(b.calls.cmp(&a.calls)).then_with(name)
        });
        rows
    }
}

table_of_rows!(Operations, OperationAverage, "no operations were recorded: no framework reported any");

impl OperationAverage {
    /// Returns a row. An operation past the limit of names has no name.
    pub(super) fn of(name: Option<&str>, shapes: Option<Shapes<'_>>, tally: &OperationTally) -> Self {
        let OperationTally { calls, flops, alone, shared, kernels } = *tally;
        Self {
            name: name.unwrap_or(labels::OTHERS).to_owned(),
            shapes: shapes.map(|shapes| shapes.arguments.to_owned()),
            gemm: shapes.and_then(|shapes| shapes.gemm).map(str::to_owned),
            calls,
            flops,
            alone,
            shared,
            kernels,
        }
    }

    /// Returns the table of the rows.
    pub(super) fn table(rows: &[Self]) -> Table {
        let mut table = Table::default();
        table.text("Operation", rows, |row| row.name.clone());
        if rows.iter().any(|row| row.kernels > 0 || !(row.alone + row.shared).is_zero()) {
            table.number("CUDA alone", rows, |row| units::column_time(row.alone));
            table.number("CUDA shared", rows, |row| units::column_time(row.shared));
            table.number("# of Kernels", rows, |row| row.kernels.to_string()).droppable(1);
        }
        table.number("# of Calls", rows, |row| row.calls.to_string());
        table.number("Total FLOPs", rows, |row| units::flops(row.flops)).droppable(2);
        table.text("Input Shapes", rows, |row| row.shapes.clone());
        table.text("m×n×k", rows, |row| row.gemm.clone());
        table
    }
}

impl SortOperationsBy {
    /// Compares two rows.
    pub(super) fn order(self, a: &OperationAverage, b: &OperationAverage) -> Ordering {
        match self {
            Self::Gpu => (b.alone + b.shared).cmp(&(a.alone + a.shared)),
            Self::Alone => b.alone.cmp(&a.alone),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Flops => b.flops.cmp(&a.flops),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

impl OperationTimes {
    /// Adds the operations of a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        if trace.operations().len() == 0 {
            return;
        }
        let mut calls = vec![0_u64; trace.operations.len()];
        trace.operations().for_each(|call| calls[call.operation_id().index()] += 1);
        let indices: Vec<_> = trace.operations.iter().map(|operation| self.indices(operation)).collect();
        for ((operation, indices), calls) in trace.operations.iter().zip(&indices).zip(calls) {
            let flops = operation.fields().op().flops().unwrap_or(0).saturating_mul(calls);
            let (_, by_name) = &mut self.by_name.tallies[indices.by_name];
            let (_, by_shape) = &mut self.by_shape.tallies[indices.by_shape];
            for tally in [by_name, by_shape] {
                tally.calls += calls;
                tally.flops = tally.flops.saturating_add(flops);
            }
        }
        let mut batches = vec![BatchWork::default(); trace.batches.len()];
        for work in trace.work() {
            if let Some(batch) = work.batch_id().and_then(|batch| batches.get_mut(batch.index())) {
                batch.time += work.duration();
                batch.kernels += u64::from(work.kernel().is_some());
            }
        }
        self.by_name.add_batches(trace, &batches, |operation| indices[operation.index()].by_name);
        self.by_shape.add_batches(trace, &batches, |operation| indices[operation.index()].by_shape);
    }

    /// Returns the tallies of an operation, which are added if they are new.
    fn indices(&mut self, operation: &Operation) -> TallyIndices {
        let name = self.labels.name(operation.name());
        // Operations past the limit of names are one row, whatever their shapes.
        let arguments = name.and_then(|_| argument_shapes(operation.fields()));
        let gemm = operation.fields().op().gemm();
        let shapes = arguments.and_then(|arguments| self.labels.shapes(&arguments, gemm));
        let mut label = Label { name, shapes };
        if self.by_shape.tallies.len() >= labels::NAMES && !self.by_shape.indices.contains_key(&label) {
            label.shapes = None;
        }
        let by_name = self.by_name.index(Label { name, shapes: None });
        TallyIndices { by_name, by_shape: self.by_shape.index(label) }
    }

    /// Returns whether there were no operations.
    pub(super) fn is_empty(&self) -> bool {
        self.by_name.tallies.is_empty()
    }

    /// Returns the name, the shapes if asked for, and the tally of all operations. The name is `None` past the limit of
    /// names.
    pub(super) fn iter(
        &self,
        by_shape: bool,
    ) -> impl Iterator<Item = (Option<&str>, Option<Shapes<'_>>, &OperationTally)> {
        let tallies = if by_shape { &self.by_shape.tallies } else { &self.by_name.tallies };
        tallies.iter().map(|(label, tally)| {
            let (name, shapes) = self.labels.resolve(*label);
            (name, shapes, tally)
        })
    }
}

impl Tallies {
    /// Returns the index of the tally with this label, which is added if it is new.
    fn index(&mut self, label: Label) -> usize {
        *self.indices.entry(label).or_insert_with(|| {
            self.tallies.push((label, OperationTally::default()));
            self.tallies.len() - 1
        })
    }

    /// Adds the GPU work of each batch to each tally that has operations in the batch. `index` returns the tally of an
    /// operation.
    fn add_batches(&mut self, trace: &Trace, batches: &[BatchWork], index: impl Fn(OperationId) -> usize) {
        // The batch that each tally was last seen in, so that a batch has it once.
        let mut seen = vec![usize::MAX; self.tallies.len()];
        let mut in_batch = Vec::new();
        for (batch, (calls, work)) in trace.batches.iter().zip(batches).enumerate() {
            in_batch.clear();
            let tallies = calls.iter().map(|call| index(trace.operation_calls[call.index()].operation));
            in_batch.extend(tallies.filter(|&tally| std::mem::replace(&mut seen[tally], batch) != batch));
            for &tally in &in_batch {
                let (_, tally) = &mut self.tallies[tally];
                let time = if in_batch.len() == 1 { &mut tally.alone } else { &mut tally.shared };
                *time += work.time;
                tally.kernels += work.kernels;
            }
        }
    }
}

#[cfg(test)]
mod tests;
