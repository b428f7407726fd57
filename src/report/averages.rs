use super::{
    average::{Average, SortBy},
    measured::{GpuMeasured, Measured},
    table,
    tree::Tree,
};
use crate::analysis::{Flops, percent_of};
use std::{collections::HashMap, fmt, time::Duration};

/// Time by span over the whole run, to be refined and printed.
///
/// What GPUs did for no known span is a row of its own, [`Average::UNATTRIBUTED`].
///
/// ```
/// use kernspan::{Profiler, report::SortBy};
/// use tracing_subscriber::prelude::*;
///
/// let (layer, profiler) = Profiler::builder().build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     for _ in 0..3 {
///         tracing::info_span!("step").in_scope(|| tracing::info_span!("forward").in_scope(|| ()));
///     }
/// });
/// let report = profiler.finish()?;
///
/// let forward = &report.averages().group_by_stack(1).sort_by(SortBy::SelfCpu).rows();
/// assert!(forward.iter().any(|row| row.name == "forward" && row.calls == 3 && row.stack == ["step"]));
/// println!("{}", report.averages().sort_by(SortBy::Calls).limit(10));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Averages<'a> {
    tree: &'a Tree,
    sort_by: SortBy,
    limit: usize,
    by_module: bool,
    by_shape: bool,
    stack: usize,
    width: Option<usize>,
}

/// What the spans of a row have in common.
#[derive(PartialEq, Eq, Hash)]
struct Group<'a> {
    /// Its place among the tree's names.
    name: usize,
    module: Option<&'a str>,
    shapes: Option<&'a str>,
    stack: Vec<usize>,
}

/// A row in the making.
struct Row {
    /// One of the nodes in it.
    node: usize,
    stack: Vec<usize>,
    measured: Measured,
    /// The total of those nodes that are not nested in another of the row.
    outermost: Duration,
    outermost_gpu: GpuMeasured,
    outermost_flops: Flops,
}

impl<'a> Averages<'a> {
    /// Rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The name of the row of spans that came after 10,000 names.
    pub const OTHERS: &'static str = "[others]";

    pub(super) fn new(tree: &'a Tree) -> Self {
        Self {
            tree,
            sort_by: SortBy::default(),
            limit: Self::LIMIT,
            by_module: false,
            by_shape: false,
            stack: 0,
            width: None,
        }
    }

    /// What to sort by. By default, [`SortBy::TotalCpu`].
    #[must_use]
    pub fn sort_by(mut self, sort_by: SortBy) -> Self {
        self.sort_by = sort_by;
        self
    }

    /// How many rows to show at the most. By default, [`Self::LIMIT`].
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Whether spans of different modules of a model are different rows, shown by their paths: see
    /// [`convention::MODULE`](crate::trace::convention::MODULE). By default, they are not: all spans of a name are one row.
    #[must_use]
    pub fn group_by_module(mut self, group: bool) -> Self {
        self.by_module = group;
        self
    }

    /// Whether spans with different shapes of their arguments are different rows. By default, they are not.
    #[must_use]
    pub fn group_by_shape(mut self, group: bool) -> Self {
        self.by_shape = group;
        self
    }

    /// How many of the spans around it make spans of one name different rows. By default, 0.
    #[must_use]
    pub fn group_by_stack(mut self, depth: usize) -> Self {
        self.stack = depth;
        self
    }

    /// How many columns the table may take. By default, the width of the terminal, or 120 where there is none.
    #[must_use]
    pub fn width(mut self, columns: usize) -> Self {
        self.width = Some(columns);
        self
    }

    /// The rows, sorted and limited.
    pub fn rows(&self) -> Vec<Average> {
        let mut rows = self.all_rows();
        rows.truncate(self.limit);
        rows
    }

    fn all_rows(&self) -> Vec<Average> {
        let tree = self.tree;
        let mut groups: HashMap<Group<'_>, usize> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        // Which row each node is in; a node comes after those it is nested in.
        let mut row_of: Vec<usize> = Vec::with_capacity(tree.nodes().len());
        for (place, node) in tree.nodes().iter().enumerate() {
            let stack: Vec<_> = tree.ancestors(place).take(self.stack).map(|node| tree.nodes()[node].name).collect();
            let shapes = node.shapes.as_deref().filter(|_| self.by_shape);
            let module = node.module.as_deref().filter(|_| self.by_module);
            let row = *groups.entry(Group { name: node.name, module, shapes, stack }).or_insert_with_key(|group| {
                rows.push(Row {
                    node: place,
                    stack: group.stack.clone(),
                    measured: Measured::default(),
                    outermost: Duration::ZERO,
                    outermost_gpu: GpuMeasured::default(),
                    outermost_flops: Flops::default(),
                });
                rows.len() - 1
            });
            rows[row].measured.add(&node.measured);
            if !tree.ancestors(place).any(|outer| row_of[outer] == row) {
                rows[row].outermost += node.measured.total;
                rows[row].outermost_gpu.add(&node.measured.total_gpu);
                rows[row].outermost_flops.add(&node.measured.total_flops);
            }
            row_of.push(row);
        }

        let all: Duration = tree.nodes().iter().map(|node| node.measured.own).sum();
        let all_gpu = tree.nodes().iter().map(|node| node.measured.own_gpu.time).sum::<Duration>();
        let all_gpu = all_gpu + tree.unattributed().time;
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|Row { node, stack, measured, outermost, outermost_gpu, outermost_flops }| {
                let name = tree.name(node);
                let calls = measured.calls.max(1) as f64;
                let worked = if outermost_gpu.time.is_zero() { outermost } else { outermost_gpu.time };
                Average {
                    name: name.name.clone(),
                    target: name.target.clone(),
                    location: name.location.clone(),
                    module: tree.nodes()[node].module.clone().filter(|_| self.by_module),
                    shapes: tree.nodes()[node].shapes.clone().filter(|_| self.by_shape),
                    stack: stack.into_iter().map(|name| tree.name_at(name).name.clone()).collect(),
                    calls: measured.calls,
                    self_cpu: measured.own,
                    total_cpu: outermost,
                    average_cpu: measured.total.div_f64(calls),
                    longest_cpu: measured.longest,
                    self_percent: percent_of(measured.own, all),
                    total_percent: percent_of(outermost, all),
                    flops: measured.flops,
                    total_flops: outermost_flops.count,
                    flops_per_second: outermost_flops.per_second(worked),
                    gpu_mfu: outermost_flops.percent_of_peak(outermost_gpu.time),
                    bytes: measured.bytes,
                    average_gpu: measured.total_gpu.time.div_f64(calls),
                    ..Average::of_gpu(&measured.own_gpu, &outermost_gpu, all_gpu)
                }
            })
            .collect();
        let unattributed = tree.unattributed();
        if *unattributed != GpuMeasured::default() {
            let name = Average::UNATTRIBUTED.to_owned();
            rows.push(Average { name, ..Average::of_gpu(unattributed, unattributed, all_gpu) });
        }
        // Ties by name, so that the same run prints the same table.
        rows.sort_by(|a, b| self.sort_by.order(a, b).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

impl fmt::Display for Averages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.all_rows();
        let left_out = rows.len().saturating_sub(self.limit);
        rows.truncate(self.limit);
        if rows.is_empty() {
            return writeln!(f, "no spans were recorded");
        }
        Average::table(&rows).write(f, left_out, self.width.unwrap_or_else(table::terminal_width))
    }
}

#[cfg(test)]
mod tests;
