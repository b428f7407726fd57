use super::{
    average::{Average, SortBy},
    flops::Flops,
    measured::{GpuMeasured, Measured},
    table,
    tree::Tree,
    units,
};
use std::{collections::HashMap, fmt, time::Duration};

/// Time by span over the whole run, to be refined and printed.
///
/// What GPUs did for no known span is a row of its own, [`Average::UNATTRIBUTED`].
///
/// ```
/// use kernspan::{Profiler, SortBy};
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
    /// [`convention::MODULE`](crate::convention::MODULE). By default, they are not: all spans of a name are one row.
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
                    self_percent: units::percent_of(measured.own, all),
                    total_percent: units::percent_of(outermost, all),
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
mod tests {
    use super::{Average, SortBy};
    use crate::{
        report::Report,
        trace::{
            Attribution, Detail, Trace,
            sample::{gpu_trace, say},
        },
    };
    use std::time::Duration;

    fn report(trace: &Trace) -> Report {
        let mut report = Report::default();
        report.add_trace(trace);
        report
    }

    fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn gpu_time_belongs_to_the_span_that_caused_it_and_those_around_it() {
        let rows = report(&gpu_trace()).averages().sort_by(SortBy::Name).rows();
        let times: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.self_gpu, row.total_gpu)).collect();
        assert_eq!(
            times,
            [
                (Average::UNATTRIBUTED, micros(10), micros(10)),
                ("backward", micros(100), micros(100)),
                ("forward", micros(40), micros(40)),
                ("train_step", micros(8), micros(148)),
            ]
        );
        let averages: Vec<_> = rows.iter().map(|row| (row.calls, row.average_gpu, row.kernels)).collect();
        assert_eq!(averages, [(0, micros(0), 1), (2, micros(50), 4), (2, micros(20), 2), (2, micros(74), 6)]);
        let percents: Vec<_> = rows.iter().map(|row| format!("{:.3}", row.self_gpu_percent)).collect();
        assert_eq!(percents, ["6.329", "63.291", "25.316", "5.063"], "of 158 µs");
        let memory: Vec<_> = rows.iter().map(|row| (row.self_gpu_memory, row.total_gpu_memory)).collect();
        assert_eq!(memory, [(0, 0), (-8192, -8192), (8192, 8192), (0, 0)]);
    }

    #[test]
    fn the_peak_of_memory_is_of_allocations_of_the_spans_and_nested_ones() {
        let mut trace = gpu_trace();
        // The second `forward` finds more in use; `backward` only frees, after which less is in use.
        (trace.allocations[2].in_use, trace.allocations[2].attribution) = (9192, Attribution::HandedOff);
        let peaks = |trace: &Trace| {
            let rows = report(trace).averages().sort_by(SortBy::Name).rows();
            rows.iter().map(|row| row.peak_gpu_memory).collect::<Vec<_>>()
        };
        assert_eq!(peaks(&trace), [None, None, Some(9192), Some(9192)]);
        // Allocated in the first `backward`, it is of that and of the step around it.
        trace.allocations[2].span = trace.allocations[1].span;
        assert_eq!(peaks(&trace), [None, Some(9192), Some(5096), Some(9192)]);
        trace.allocations[2].span = None;
        assert_eq!(peaks(&trace), [Some(9192), None, Some(5096), Some(5096)]);
        trace.allocations.clear();
        assert_eq!(peaks(&trace), [None; 4]);
        assert!(!report(&trace).averages().width(200).to_string().contains("CUDA Peak"));
    }

    #[test]
    fn rows_can_be_of_modules() {
        let mut trace = gpu_trace();
        // Both instances of `forward` are of one name, but not of one module.
        say(&mut trace, 1, &[("op.module", "layers.0")]);
        say(&mut trace, 4, &[("op.module", "layers.1")]);
        let report = report(&trace);
        let rows = |by_module| report.averages().group_by_module(by_module).sort_by(SortBy::Name).rows();
        let forward = |row: &Average| (row.name == "forward").then(|| (row.module.clone(), row.calls, row.total_gpu));
        let merged: Vec<_> = rows(false).iter().filter_map(forward).collect();
        assert_eq!(merged, [(None, 2, micros(40))]);
        let mut apart: Vec<_> = rows(true).iter().filter_map(forward).collect();
        apart.sort();
        assert_eq!(apart, ["layers.0", "layers.1"].map(|module| (Some(module.to_owned()), 1, micros(20))));
        assert!(report.averages().group_by_module(true).to_string().contains("\nlayers.0 "));
    }

    #[test]
    fn rows_can_be_sorted_by_what_gpus_did() {
        let report = report(&gpu_trace());
        let first = |sort_by| report.averages().sort_by(sort_by).rows()[0].name.clone();
        assert_eq!(first(SortBy::SelfGpu), "backward");
        assert_eq!(first(SortBy::TotalGpu), "train_step");
        assert_eq!(first(SortBy::GpuMemory), "forward");
    }

    #[test]
    fn long_kernels_count_for_more_in_the_occupancy() {
        let mut trace = gpu_trace();
        for work in &mut trace.work {
            if let Detail::Kernel(kernel) = &mut work.detail
                && &*kernel.name == "node"
            {
                // Sixteen blocks of four warps on each multiprocessor, which fill it.
                kernel.grid = [132 * 16, 1, 1];
                kernel.registers = 32;
                kernel.static_shared_memory = 0;
            }
        }
        let rows = report(&trace).averages().sort_by(SortBy::Name).rows();
        let occupancy: Vec<_> = rows.iter().map(|row| format!("{:.3}", row.occupancy.unwrap())).collect();
        // 60 µs at 2.273 % and 20 µs at 100 %, and for the whole step 40 µs more at 2.273 %.
        assert_eq!(occupancy, ["2.273", "26.705", "2.273", "18.561"]);
    }

    #[test]
    fn gpu_time_of_nested_spans_of_a_row_is_not_counted_twice() {
        let mut trace = gpu_trace();
        // All three are one place in the source.
        let callsite = trace.spans[0].callsite;
        trace.spans.iter_mut().for_each(|span| span.callsite = callsite);
        let rows = report(&trace).averages().rows();
        assert_eq!(rows[0].name, "train_step");
        assert_eq!((rows[0].self_gpu, rows[0].total_gpu, rows[0].kernels), (micros(148), micros(148), 6));
        // 2 × 74 µs around 2 × 20 and 2 × 50, in 6 instances.
        assert_eq!(rows[0].average_gpu, micros(288) / 6);
    }

    #[test]
    fn the_table_has_pytorchs_columns() {
        assert_eq!(format!("\n{}", report(&gpu_trace()).averages().width(200)), "
--------------  ----------  --------  -----------  ---------  ------------  ---------  -----------  ----------  -------------  --------  -------------  ---------  ---------  ----------
Name            Self CPU %  Self CPU  CPU total %  CPU total  CPU time avg  Self CUDA  Self CUDA %  CUDA total  CUDA time avg  CUDA Mem  Self CUDA Mem  CUDA Peak  Occupancy  # of Calls
--------------  ----------  --------  -----------  ---------  ------------  ---------  -----------  ----------  -------------  --------  -------------  ---------  ---------  ----------
train_step          22.22%  40.000µs      100.00%  180.000µs      90.000µs    8.000µs        5.06%   148.000µs       74.000µs       0 B            0 B    4.98 KB      2.27%           2
backward            44.44%  80.000µs       44.44%   80.000µs      40.000µs  100.000µs       63.29%   100.000µs       50.000µs  -8.00 KB       -8.00 KB         --      2.27%           2
forward             33.33%  60.000µs       33.33%   60.000µs      30.000µs   40.000µs       25.32%    40.000µs       20.000µs   8.00 KB        8.00 KB    4.98 KB      2.27%           2
[unattributed]       0.00%   0.000µs        0.00%    0.000µs       0.000µs   10.000µs        6.33%    10.000µs        0.000µs       0 B            0 B         --      2.27%           0
--------------  ----------  --------  -----------  ---------  ------------  ---------  -----------  ----------  -------------  --------  -------------  ---------  ---------  ----------
");
        assert_eq!(
            format!("\n{}", report(&gpu_trace()).averages().width(120)),
            "
--------------  --------  ---------  ---------  -----------  ----------  --------  -------------  ---------  ----------
Name            Self CPU  CPU total  Self CUDA  Self CUDA %  CUDA total  CUDA Mem  Self CUDA Mem  Occupancy  # of Calls
--------------  --------  ---------  ---------  -----------  ----------  --------  -------------  ---------  ----------
train_step      40.000µs  180.000µs    8.000µs        5.06%   148.000µs       0 B            0 B      2.27%           2
backward        80.000µs   80.000µs  100.000µs       63.29%   100.000µs  -8.00 KB       -8.00 KB      2.27%           2
forward         60.000µs   60.000µs   40.000µs       25.32%    40.000µs   8.00 KB        8.00 KB      2.27%           2
[unattributed]   0.000µs    0.000µs   10.000µs        6.33%    10.000µs       0 B            0 B      2.27%           0
--------------  --------  ---------  ---------  -----------  ----------  --------  -------------  ---------  ----------
no room for CPU total %, Self CPU %, CUDA time avg, CPU time avg, CUDA Peak
"
        );
    }
}
