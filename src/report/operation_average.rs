//! Rows of the table of operations, and the columns they can be sorted by.

use super::{limits, operation_times::OperationTally, shapes::Shapes, table::Table, units};
use std::{cmp::Ordering, time::Duration};

/// The column by which the rows of [`Operations`](super::Operations) are sorted, largest value first.
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

/// A row of [`Operations`](super::Operations): the operations of one name, or of one name and shape if grouped by
/// shape.
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

impl OperationAverage {
    /// Returns a row. An operation past the limit of names has no name.
    pub(super) fn of(name: Option<&str>, shapes: Option<Shapes<'_>>, tally: &OperationTally) -> Self {
        let OperationTally { calls, flops, alone, shared, kernels } = *tally;
        Self {
            name: name.unwrap_or(limits::OTHERS).to_owned(),
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
        table.number("Total FLOPs", rows, |row| units::count(row.flops)).droppable(2);
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
