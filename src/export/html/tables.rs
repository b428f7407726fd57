//! The tables of kernels, of operations and of memory owners.

use super::{
    cell::{Grid, Unit},
    names::{Names, shortened_path},
    spans::nonzero,
};
use crate::report::{Kernels, MemoryPeak, Operations, Report};

/// The maximum number of rows in a table.
const ROWS: usize = 2_000;

/// Returns the kernels that took the most time.
pub(super) fn kernels(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = Kernels::limit(report.kernels(), usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Kernel", rows, names, |row| &row.name);
    grid.column(("CUDA total", Unit::Total, ""), rows, |row| row.total);
    grid.column(("CUDA %", Unit::Percent, "of the time of all GPU work"), rows, |row| row.percent);
    grid.column(("# of Calls", Unit::Number, ""), rows, |row| row.calls);
    grid.column(("Average", Unit::Time, ""), rows, |row| row.average);
    grid.column(("Shortest", Unit::Time, ""), rows, |row| row.shortest);
    grid.column(("Longest", Unit::Time, ""), rows, |row| row.longest);
    grid.column(("Occupancy", Unit::Percent, "estimated"), rows, |row| row.occupancy);
    grid.column(("Registers", Unit::Number, "of a thread"), rows, |row| row.registers.map(u64::from));
    grid.column(("Bytes", Unit::Count, ""), rows, |row| nonzero(row.bytes));
    grid.column(("Bytes/s", Unit::Rate, ""), rows, |row| row.bytes_per_second);
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the operations of frameworks that took the most GPU time.
pub(super) fn operations(report: &Report, names: &mut Names) -> Option<Grid> {
    let all = Operations::limit(report.operations(), usize::MAX).rows();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Operation", rows, names, |row| &row.name);
    let alone = "GPU time of kernels that did nothing else";
    grid.column(("CUDA alone", Unit::Total, alone), rows, |row| row.alone);
    grid.column(("CUDA shared", Unit::Total, "GPU time of kernels that also did others"), rows, |row| row.shared);
    grid.column(("Kernels", Unit::Number, ""), rows, |row| row.kernels);
    grid.column(("# of Calls", Unit::Number, ""), rows, |row| row.calls);
    grid.column(("Total FLOPs", Unit::Count, ""), rows, |row| nonzero(row.flops));
    grid.left_out(all.len() - rows.len());
    (!rows.is_empty()).then_some(grid)
}

/// Returns the spans that had allocated the memory of a GPU at its peak.
pub(super) fn owners(peak: &MemoryPeak, names: &mut Names) -> Grid {
    let before = (MemoryPeak::BEFORE.to_owned(), peak.before, None);
    let path =
        |name: &str, stack: &[String]| shortened_path([name].into_iter().chain(stack.iter().map(String::as_str)));
    let owners = peak.owners.iter().map(|it| (path(&it.name, &it.stack), it.bytes, Some(it.allocations)));
    let all: Vec<_> = (peak.before > 0).then_some(before).into_iter().chain(owners).collect();
    let rows = &all[..all.len().min(ROWS)];
    let mut grid = Grid::default();
    grid.names("Allocated by", rows, names, |(name, ..)| name);
    grid.column(("In use", Unit::Memory, ""), rows, |(_, bytes, _)| *bytes);
    let percent = |bytes: u64| 100.0 * bytes as f64 / peak.in_use.max(1) as f64;
    grid.column(("Of the peak", Unit::Percent, ""), rows, |(_, bytes, _)| percent(*bytes));
    grid.column(("Allocations", Unit::Number, ""), rows, |(.., allocations)| *allocations);
    grid.left_out(all.len() - rows.len());
    grid
}
