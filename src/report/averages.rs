//! The table of time by span.

use super::{
    average::{Average, Latency, SortBy},
    call_tree::{CallNode, CallTree},
    durations::CallTimes,
    labels,
    table::Table,
    totals::{GpuTotals, SpanTotals},
    view::{View, table_of_rows},
};
use crate::analysis::percent_of;
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// A table of time by span over the whole run, like PyTorch's `key_averages()`.
///
/// Refine it with its methods, then print it or take its [`rows`](Self::rows). GPU work that belongs to no known span
/// is a row of its own, [`Average::UNATTRIBUTED`].
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
#[must_use = "a table does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct Averages<'a> {
    tree: &'a CallTree,
    sort_by: SortBy,
    by_module: bool,
    by_shape: bool,
    stack_depth: usize,
    view: View,
}

/// The identity of a row: nodes of the call tree with the same key are in the same row.
#[derive(PartialEq, Eq, Hash)]
struct SpanRowKey<'a> {
    /// The index of the name in the tree.
    name: usize,
    module: Option<&'a str>,
    shapes: Option<&'a str>,
    stack: StackKey,
}

/// The surrounding nodes of a row, as far as they are compared.
#[derive(PartialEq, Eq, Hash)]
enum StackKey {
    /// The indices of their names, from the inside out.
    Names(Vec<usize>),
    /// The index of their path: see [`NamePaths`](super::call_tree::NamePaths).
    Path(Option<usize>),
}

/// The totals of a row.
struct SpanRowTotals {
    /// The index of the first node in the row.
    node: usize,
    /// All nodes.
    all: SpanTotals,
    /// The outermost nodes: those that are not nested in another node of the row.
    outermost: SpanTotals,
    /// The times of the calls of the outermost nodes.
    times: CallTimes,
}

/// Rows by path: see [`Averages::paths`].
#[derive(Debug)]
pub(crate) struct PathRows {
    /// The rows, each with the index of the row around it, which comes before it.
    pub(crate) rows: Vec<(Average, Option<usize>)>,
    /// The number of paths that have no row.
    pub(crate) left_out: usize,
}

impl<'a> Averages<'a> {
    /// The number of rows that are shown by default.
    pub const LIMIT: usize = 100;
    /// The name of the row for all spans past the first 10,000 names.
    pub const OTHERS: &'static str = labels::OTHERS;

    pub(super) fn new(tree: &'a CallTree) -> Self {
        let view = View::new(Self::LIMIT);
        Self { tree, sort_by: SortBy::default(), by_module: false, by_shape: false, stack_depth: 0, view }
    }

    /// Sorts the rows by a column. By default, [`SortBy::TotalCpu`].
    pub fn sort_by(mut self, sort_by: SortBy) -> Self {
        self.sort_by = sort_by;
        self
    }

    /// Sets whether each module of a model has a row of its own, shown by its path: see
    /// [`convention::MODULE`](crate::trace::convention::MODULE). By default, all spans of a name are one row.
    pub fn group_by_module(mut self, group: bool) -> Self {
        self.by_module = group;
        self
    }

    /// Sets whether spans of one name with different argument shapes are different rows. By default, they are not.
    pub fn group_by_shape(mut self, group: bool) -> Self {
        self.by_shape = group;
        self
    }

    /// Sets how many of the surrounding spans are compared: spans of one name are different rows if the names of the
    /// spans around them differ, or of those that they work for on other threads: see
    /// [`Span::caller`](crate::trace::Span::caller). By default, 0: all spans of a name are one row.
    ///
    /// More than 100 compares all of them, however many there are, and [`Average::stack`] has the innermost 100.
    pub fn group_by_stack(mut self, depth: usize) -> Self {
        self.stack_depth = depth;
        self
    }

    /// Returns all rows of spans, in the order in which they first began.
    pub(super) fn in_order(&self) -> Vec<Average> {
        let (all_cpu, all_gpu) = self.all_time();
        self.totals().into_iter().map(|totals| self.average(totals, all_cpu, all_gpu)).collect()
    }

    fn all_rows(&self) -> Vec<Average> {
        let mut rows = self.in_order();
        rows.extend(self.unattributed(self.all_time().1));
        // Ties by name, so that the same run prints the same table.
        rows.sort_by(|a, b| self.sort_by.order(a, b).then_with(|| a.name.cmp(&b.name)));
        rows
    }

    /// Adds up the nodes of each row.
    fn totals(&self) -> Vec<SpanRowTotals> {
        let tree = self.tree;
        let paths = (self.stack_depth > labels::STACK).then(|| tree.name_paths());
        let mut row_index: FxHashMap<SpanRowKey<'_>, usize> = FxHashMap::default();
        let mut rows: Vec<SpanRowTotals> = Vec::new();
        let mut row_of: Vec<usize> = Vec::with_capacity(tree.nodes().len());
        for (index, node) in tree.nodes().iter().enumerate() {
            let stack = match &paths {
                Some(paths) => StackKey::Path(paths.parents[paths.of_node[index]]),
                None => {
                    let callers = tree.callers(index).take(self.stack_depth);
                    StackKey::Names(callers.map(|node| tree.nodes()[node].name).collect())
                }
            };
            let shapes = node.shapes.as_deref().filter(|_| self.by_shape);
            let module = node.module.as_deref().filter(|_| self.by_module);
            row_of.push(*row_index.entry(SpanRowKey { name: node.name, module, shapes, stack }).or_insert_with(|| {
                rows.push(SpanRowTotals::new(index));
                rows.len() - 1
            }));
        }
        let outermost = tree.outermost(&row_of);
        for ((node, row), is_outermost) in tree.nodes().iter().zip(row_of).zip(outermost) {
            rows[row].add(node, is_outermost);
        }
        rows
    }

    /// Returns the time of all spans, and that of all GPU work.
    fn all_time(&self) -> (Duration, Duration) {
        let nodes = self.tree.nodes();
        let gpu = nodes.iter().map(|node| node.totals.self_gpu.time).sum::<Duration>();
        (nodes.iter().map(|node| node.totals.self_time).sum(), gpu + self.tree.unattributed().time)
    }

    /// Returns the row of GPU work that belongs to no known span, if there is such work.
    fn unattributed(&self, all_gpu: Duration) -> Option<Average> {
        let unattributed = self.tree.unattributed();
        let row = || Average::of_gpu(unattributed, unattributed, all_gpu);
        (*unattributed != GpuTotals::default()).then(|| Average { name: Average::UNATTRIBUTED.to_owned(), ..row() })
    }

    /// Returns the rows of at most `most` paths, of at most `deepest` names each, as a tree: those that took the
    /// longest, on the host or on GPUs, with those around them. Memory is by the number of paths, however deep they
    /// are.
    pub(crate) fn paths(&self, most: usize, deepest: usize) -> PathRows {
        let tree = self.tree;
        let paths = tree.name_paths();
        let outermost = tree.outermost(&paths.of_node);
        let mut times = vec![(Duration::ZERO, Duration::ZERO); paths.parents.len()];
        let nodes = || tree.nodes().iter().zip(&paths.of_node).zip(&outermost);
        for ((node, &path), _) in nodes().filter(|(_, is_outermost)| **is_outermost) {
            times[path].0 = times[path].0.saturating_add(node.totals.total_time);
            times[path].1 = times[path].1.saturating_add(node.totals.total_gpu.time);
        }
        let mut longest: Vec<_> = times.iter().map(|&(host, gpu)| host.max(gpu)).collect();
        drop(times);
        let mut depths: Vec<usize> = Vec::with_capacity(paths.parents.len());
        paths.parents.iter().for_each(|parent| depths.push(parent.map_or(1, |parent| depths[parent] + 1)));
        // What is around a path comes before it, also if it works for the path from another thread and took less.
        for (path, parent) in paths.parents.iter().enumerate().rev() {
            if let Some(parent) = *parent {
                longest[parent] = longest[parent].max(longest[path]);
            }
        }
        let mut kept: Vec<_> = (0..paths.parents.len()).filter(|&path| depths[path] <= deepest).collect();
        kept.sort_by_key(|&path| (Reverse(longest[path]), path));
        kept.truncate(most);
        let mut row_of: FxHashMap<usize, usize> = kept.iter().enumerate().map(|(row, &path)| (path, row)).collect();
        let mut rows: Vec<Option<SpanRowTotals>> = kept.iter().map(|_| None).collect();
        for (index, ((node, path), &is_outermost)) in nodes().enumerate() {
            if let Some(&row) = row_of.get(path) {
                rows[row].get_or_insert_with(|| SpanRowTotals::new(index)).add(node, is_outermost);
            }
        }
        let (all_cpu, all_gpu) = self.all_time();
        let rows = rows.into_iter().flatten().map(|row| self.average(row, all_cpu, all_gpu));
        let mut rows: Vec<_> = rows.zip(kept).map(|(row, path)| (row, Some(path))).collect();
        rows.extend(self.unattributed(all_gpu).map(|row| (row, None)));
        let depth = |path: &Option<usize>| path.map_or(1, |path| depths[path]);
        rows.sort_by(|(a, path_a), (b, path_b)| {
            let time = |row: &Average| row.total_cpu.max(row.total_gpu);
            depth(path_a).cmp(&depth(path_b)).then_with(|| time(b).cmp(&time(a))).then_with(|| a.name.cmp(&b.name))
        });
        row_of.clear();
        row_of.extend(rows.iter().enumerate().filter_map(|(row, (_, path))| Some(((*path)?, row))));
        let parent = |path: Option<usize>| row_of.get(&paths.parents[path?]?).copied();
        let left_out = paths.parents.len() - row_of.len();
        PathRows { rows: rows.into_iter().map(|(row, path)| (row, parent(path))).collect(), left_out }
    }

    /// Makes a row of its totals. `all_cpu` and `all_gpu` are the times of all rows.
    fn average(&self, row: SpanRowTotals, all_cpu: Duration, all_gpu: Duration) -> Average {
        let SpanRowTotals { node: first, all, outermost, times } = row;
        let node = &self.tree.nodes()[first];
        let callers = self.tree.callers(first).take(self.stack_depth);
        let name = self.tree.name(node.name);
        let module = node.module.as_ref().filter(|_| self.by_module);
        let calls = outermost.calls.max(1) as f64;
        // The middle of a bucket may be past the longest time.
        let percentile = |percent| times.busy().percentile(percent).unwrap_or_default().min(outermost.longest);
        let latency = times.latency().map(|latencies| {
            let percentile = |percent| latencies.percentile(percent).unwrap_or_default().min(outermost.longest_latency);
            Latency {
                average: outermost.latency.div_f64(calls),
                p50: percentile(50.0),
                p95: percentile(95.0),
                longest: outermost.longest_latency,
            }
        });
        let (gpu, on_cpu) = (&outermost.total_gpu, &outermost.on_cpu);
        let flops_time = if gpu.time.is_zero() { outermost.total_time } else { gpu.time };
        Average {
            name: name.name.clone(),
            target: name.target.clone(),
            location: name.location.clone(),
            module: module.cloned(),
            parameters: all.parameters.filter(|_| module.is_some()),
            parameter_bytes: all.parameter_bytes.filter(|_| module.is_some()),
            shapes: node.shapes.clone().filter(|_| self.by_shape),
            stack: labels::shortened(callers.map(|node| self.tree.name(self.tree.nodes()[node].name).name.as_str())),
            calls: all.calls,
            cut_calls: all.cut_calls,
            outermost_calls: outermost.calls,
            enters: all.enters,
            self_cpu: all.self_time,
            total_cpu: outermost.total_time,
            average_cpu: outermost.whole_time.div_f64(calls),
            p50_cpu: percentile(50.0),
            p95_cpu: percentile(95.0),
            longest_cpu: outermost.longest,
            latency,
            self_percent: percent_of(all.self_time, all_cpu),
            total_percent: percent_of(outermost.total_time, all_cpu),
            flops: all.flops,
            total_flops: outermost.total_flops.count,
            flops_per_second: outermost.total_flops.per_second(flops_time),
            gpu_mfu: outermost.total_flops.percent_of_peak(gpu.time),
            bytes: all.bytes,
            self_heap: all.self_heap,
            total_heap: outermost.total_heap,
            self_on_cpu: all.on_cpu.known(all.on_cpu.own),
            total_on_cpu: on_cpu.known(on_cpu.total),
            on_cpu_percent: on_cpu.known(percent_of(on_cpu.total, on_cpu.elapsed)),
            average_gpu: outermost.whole_gpu.div_f64(calls),
            ..Average::of_gpu(&all.self_gpu, gpu, all_gpu)
        }
    }
}

table_of_rows!(Averages, Average, "no spans were recorded");

impl SpanRowTotals {
    fn new(node: usize) -> Self {
        Self { node, all: SpanTotals::default(), outermost: SpanTotals::default(), times: CallTimes::default() }
    }

    /// Adds a node of the row.
    fn add(&mut self, node: &CallNode, is_outermost: bool) {
        self.all.add(&node.totals);
        if is_outermost {
            self.outermost.add(&node.totals);
            self.times.merge(&node.times);
        }
    }
}

#[cfg(test)]
mod tests;
