//! Rows of the table of kernels.

use super::{kernel_times::KernelTally, table::Table, units};
use crate::analysis::percent_of;
use std::time::Duration;

/// A row of [`Kernels`](super::Kernels): the kernels of one name, or the copies between two kinds of memory, or the
/// fills of one.
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
            table.number("Bytes", rows, |row| units::count(row.bytes)).droppable(1);
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
