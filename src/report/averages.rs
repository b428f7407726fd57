use super::{
    table,
    tree::{Measured, Tree},
};
use std::{collections::HashMap, fmt, time::Duration};

/// Time by span over the whole run, to be refined and printed.
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
    by_shape: bool,
    stack: usize,
    width: Option<usize>,
}

/// A row in the making.
struct Row {
    /// One of the nodes in it.
    node: usize,
    stack: Vec<usize>,
    measured: Measured,
    /// The total of those nodes that are not nested in another of the row.
    outermost: Duration,
}

/// What the rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SortBy {
    /// Time with nested spans.
    #[default]
    TotalCpu,
    /// Time without nested spans.
    SelfCpu,
    /// Time with nested spans, by call.
    AverageCpu,
    /// Number of calls.
    Calls,
    /// Floating-point operations.
    Flops,
    /// The name, the first in the alphabet first.
    Name,
}

/// One row: the spans of one name, and of one shape and stack if it was asked for.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Average {
    /// The name.
    pub name: String,
    /// The target, by default the module path.
    pub target: String,
    /// `file:line`, if known.
    pub location: Option<String>,
    /// Shapes of the arguments, when grouped by shape.
    pub shapes: Option<String>,
    /// The names of the spans around it, from the inside out, when grouped by stack.
    pub stack: Vec<String>,
    /// How many instances there were.
    pub calls: u64,
    /// Time without nested spans.
    pub self_cpu: Duration,
    /// Time with nested spans. A span nested in one of the same row is not counted twice.
    pub total_cpu: Duration,
    /// Time with nested spans of one instance, on average.
    pub average_cpu: Duration,
    /// The longest instance.
    pub longest_cpu: Duration,
    /// `self_cpu` in percent of all recorded time of all threads.
    pub self_percent: f64,
    /// `total_cpu` in percent of all recorded time of all threads.
    pub total_percent: f64,
    /// Floating-point operations, as far as spans say: see [`convention::FLOPS`](crate::convention::FLOPS).
    pub flops: u64,
    /// Bytes moved, as far as spans say: see [`convention::BYTES`](crate::convention::BYTES).
    pub bytes: u64,
}

impl<'a> Averages<'a> {
    /// Rows that are shown by default.
    pub const LIMIT: usize = 100;

    pub(super) fn new(tree: &'a Tree) -> Self {
        Self { tree, sort_by: SortBy::default(), limit: Self::LIMIT, by_shape: false, stack: 0, width: None }
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
        let mut groups: HashMap<(usize, Option<&str>, Vec<usize>), usize> = HashMap::new();
        let mut rows: Vec<Row> = Vec::new();
        // Which row each node is in; a node comes after those it is nested in.
        let mut row_of: Vec<usize> = Vec::with_capacity(tree.nodes().len());
        for (place, node) in tree.nodes().iter().enumerate() {
            let stack: Vec<_> = tree.ancestors(place).take(self.stack).map(|node| tree.nodes()[node].name).collect();
            let shapes = node.shapes.as_deref().filter(|_| self.by_shape);
            let row = *groups.entry((node.name, shapes, stack)).or_insert_with_key(|(_, _, stack)| {
                rows.push(Row {
                    node: place,
                    stack: stack.clone(),
                    measured: Measured::default(),
                    outermost: Duration::ZERO,
                });
                rows.len() - 1
            });
            rows[row].measured.add(&node.measured);
            if !tree.ancestors(place).any(|outer| row_of[outer] == row) {
                rows[row].outermost += node.measured.total;
            }
            row_of.push(row);
        }

        let all: Duration = tree.nodes().iter().map(|node| node.measured.own).sum();
        let percent = |time: Duration| match all.as_secs_f64() {
            0.0 => 0.0,
            all => 100.0 * time.as_secs_f64() / all,
        };
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|Row { node, stack, measured, outermost }| {
                let name = tree.name(node);
                Average {
                    name: name.name.clone(),
                    target: name.target.clone(),
                    location: name.location.clone(),
                    shapes: tree.nodes()[node].shapes.clone().filter(|_| self.by_shape),
                    stack: stack.into_iter().map(|name| tree.name_at(name).name.clone()).collect(),
                    calls: measured.calls,
                    self_cpu: measured.own,
                    total_cpu: outermost,
                    average_cpu: measured.total.div_f64(measured.calls.max(1) as f64),
                    longest_cpu: measured.longest,
                    self_percent: percent(measured.own),
                    total_percent: percent(outermost),
                    flops: measured.flops,
                    bytes: measured.bytes,
                }
            })
            .collect();
        // Ties by name, so that the same run prints the same table.
        rows.sort_by(|a, b| self.sort_by.order(a, b).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

impl SortBy {
    fn order(self, a: &Average, b: &Average) -> std::cmp::Ordering {
        match self {
            Self::TotalCpu => b.total_cpu.cmp(&a.total_cpu),
            Self::SelfCpu => b.self_cpu.cmp(&a.self_cpu),
            Self::AverageCpu => b.average_cpu.cmp(&a.average_cpu),
            Self::Calls => b.calls.cmp(&a.calls),
            Self::Flops => b.flops.cmp(&a.flops),
            Self::Name => a.name.cmp(&b.name),
        }
    }
}

impl fmt::Display for Averages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = self.all_rows();
        let left_out = rows.len().saturating_sub(self.limit);
        rows.truncate(self.limit);
        table::write(f, &rows, left_out, self.width.unwrap_or_else(table::terminal_width))
    }
}
