//! The tree of spans with their times.

use super::{
    cell::{Grid, Unit},
    names::Names,
    paths::Paths,
};
use crate::report::{Average, Report};
use std::{collections::HashMap, time::Duration};

/// The spans of a report as a tree, each path once.
#[derive(Debug)]
pub(super) struct SpanTree {
    /// The rows, each with its path from the outside in.
    rows: Vec<(Average, Vec<String>)>,
    parents: Vec<Option<usize>>,
    by_path: HashMap<Vec<String>, usize>,
    left_out: usize,
}

impl SpanTree {
    /// The most rows of the table.
    const ROWS: usize = 3_000;

    pub(super) fn of(report: &Report) -> Self {
        let rows = report.averages().group_by_stack(usize::MAX).limit(usize::MAX).rows();
        let all = rows.len();
        let mut rows: Vec<_> = rows.into_iter().map(with_path).collect();
        // The longest are kept. Those around them are as long, and come first.
        rows.sort_by_key(|(row, path)| (std::cmp::Reverse(row.total_cpu.max(row.total_gpu)), path.len()));
        rows.truncate(Self::ROWS);
        rows.sort_by_key(|(_, path)| path.len());
        let mut by_path: HashMap<Vec<String>, usize> = HashMap::new();
        let mut parents = Vec::with_capacity(rows.len());
        for (index, (_, path)) in rows.iter().enumerate() {
            parents.push((1..path.len()).rev().find_map(|length| by_path.get(&path[..length]).copied()));
            by_path.entry(path.clone()).or_insert(index);
        }
        Self { left_out: all - rows.len(), rows, parents, by_path }
    }

    /// Returns the row of the spans with this path, from the outside in.
    pub(super) fn row(&self, path: &[String]) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn table(&self, paths: &Paths, names: &mut Names) -> Grid {
        let rows = &self.rows;
        let mut grid = Grid::default();
        grid.names("Name", rows, names, |(row, _)| &row.name);
        let mut column = |title, unit, help, of: &dyn Fn(&Average) -> super::cell::Cell| {
            grid.column((title, unit, help), rows, |(row, _)| of(row));
        };
        column("Total time", Unit::Total, "on the host, with nested spans", &|row| row.total_cpu.into());
        column("Self time", Unit::Total, "on the host, without nested spans", &|row| row.self_cpu.into());
        column("CUDA total", Unit::Total, "GPU time, with nested spans", &|row| row.total_gpu.into());
        column("Self CUDA", Unit::Total, "GPU time of what the span launched itself", &|row| row.self_gpu.into());
        let exposed = |path: &Vec<String>| paths.cost(path).map(|cost| cost.exposed);
        let help = "time on the critical path, of the host and of GPUs: the rest is hidden by something else. Of \
                    very large windows, the first steps only";
        grid.column(("Exposed", Unit::Total, help), rows, |(_, path)| exposed(path));
        let mut column = |title, unit, help, of: &dyn Fn(&Average) -> super::cell::Cell| {
            grid.column((title, unit, help), rows, |(row, _)| of(row));
        };
        column("# of Calls", Unit::Number, "", &|row| row.calls.into());
        column("p50", Unit::Time, "median time of a call", &|row| called(row, row.p50_cpu).into());
        column("p95", Unit::Time, "95 % of calls took no longer", &|row| called(row, row.p95_cpu).into());
        column("Kernels", Unit::Number, "launched, with nested spans", &|row| row.kernels.into());
        column("Total FLOPs", Unit::Count, "with nested spans", &|row| nonzero(row.total_flops).into());
        column("FLOP/s", Unit::Rate, "operations a second of GPU time", &|row| row.flops_per_second.into());
        column("GPU MFU", Unit::Share, "operations in percent of the GPU's peak", &|row| row.gpu_mfu.into());
        column("Occupancy", Unit::Percent, "estimated", &|row| row.occupancy.into());
        column("CUDA Mem", Unit::Memory, "allocated less freed, with nested spans", &|row| row.total_gpu_memory.into());
        column("CUDA Peak", Unit::Memory, "the most in use after an allocation", &|row| row.peak_gpu_memory.into());
        column("Source", Unit::Text, "", &|row| row.location.clone().into());
        grid.tree(self.parents.clone());
        grid.left_out(self.left_out);
        grid
    }
}

fn with_path(row: Average) -> (Average, Vec<String>) {
    let path = row.stack.iter().rev().chain([&row.name]).cloned().collect();
    (row, path)
}

fn called(row: &Average, time: Duration) -> Option<Duration> {
    (row.calls > 0).then_some(time)
}

pub(super) fn nonzero(number: u64) -> Option<u64> {
    (number > 0).then_some(number)
}
