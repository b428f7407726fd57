//! The time of spans by path, as an indented tree.

use super::{
    Report,
    average::Average,
    averages::{Averages, PathRows},
    table::Table,
    units,
    view::{View, view_methods},
};
use crate::analysis::percent_of;
use std::{fmt, time::Duration};

/// The tree of spans with their times: what a flame graph draws, as text. Spans of one name in the same spans are one
/// row, wherever in the run they were; so 72 calls of `linear` in the attention and in the MLP of 12 blocks are a row
/// in each. What is around a span is what it works for: see [`Span::caller`](crate::trace::Span::caller).
///
/// Rows are sorted by their time on the host or on GPUs, whichever is longer. In the printed tree, those that took less
/// than 1 % of the time are folded into a line that says how many there are, and more if they are past the limit.
///
/// ```
/// use kernspan::Profiler;
/// use tracing_subscriber::prelude::*;
///
/// let (layer, profiler) = Profiler::builder().build()?;
/// tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
///     tracing::info_span!("step").in_scope(|| tracing::info_span!("forward").in_scope(|| ()));
/// });
/// let report = profiler.finish()?;
/// assert!(report.time_tree().to_string().contains("\n  forward "));
/// # Ok::<(), kernspan::Error>(())
/// ```
#[must_use = "a tree does nothing unless it is printed or its rows are taken"]
#[derive(Clone, Copy, Debug)]
pub struct TimeTree<'a> {
    averages: Averages<'a>,
    depth: usize,
    view: View,
}

/// The share of the time of all threads, and of all GPU work, in percent below which rows are folded. What saves less
/// is no finding, either.
const SMALL: f64 = 1.0;

/// What is written next: a row, or several that are folded into a line, by their indices.
enum Next {
    Row(usize),
    Folded(Vec<usize>),
}

/// A line of the printed tree.
struct Line {
    label: String,
    row: Average,
    /// Whether it stands for several rows, of which only the times are known.
    is_folded: bool,
}

impl Report {
    /// Returns the tree of spans with their times over all windows.
    pub fn time_tree(&self) -> TimeTree<'_> {
        let averages = self.averages().group_by_stack(usize::MAX);
        TimeTree { averages, depth: TimeTree::DEPTH, view: View::new(TimeTree::LIMIT) }
    }
}

impl TimeTree<'_> {
    /// The number of rows that are shown by default: the longest, and those around them.
    pub const LIMIT: usize = 100;
    /// The nesting depth of spans that are shown by default. Names of deeper ones have no room next to their times.
    pub const DEPTH: usize = 32;

    view_methods!("Limits the number of rows. By default, [`Self::LIMIT`].");

    /// Limits how deeply nested the spans are that have rows; the outermost have depth 1. By default,
    /// [`Self::DEPTH`].
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth;
        self
    }

    /// Returns the rows from the outside in, each before those inside it, and none folded. Their
    /// [`stack`](Average::stack) says what is around them.
    #[must_use]
    pub fn rows(&self) -> Vec<Average> {
        let PathRows { rows, .. } = self.averages.paths(self.view.limit, self.depth);
        lines(rows, usize::MAX).into_iter().map(|line| line.row).collect()
    }

    /// Returns the tree as it is printed, for programs that print it in another format.
    pub fn table(&self) -> Table {
        let PathRows { rows, left_out } = self.averages.paths(usize::MAX, self.depth);
        let lines = lines(rows, self.view.limit);
        let rows = &lines[..];
        let mut table = Table::default();
        table.text("Name", rows, |line| line.label.clone()).keep_indent();
        table.number("Total time", rows, |line| units::column_time(line.row.total_cpu));
        table.number("Total %", rows, |line| line.known(|row| units::percent(row.total_percent)));
        table.number("Self time", rows, |line| line.known(|row| units::column_time(row.self_cpu))).droppable(2);
        if rows.iter().any(|line| !line.row.total_gpu.is_zero()) {
            table.number("CUDA total", rows, |line| units::column_time(line.row.total_gpu));
            table.number("Self CUDA", rows, |line| line.known(|row| units::column_time(row.self_gpu))).droppable(1);
        }
        table.number("# of Calls", rows, |line| line.known(|row| units::calls(row.calls, row.cut_calls)));
        table.left_out(left_out).width(self.view.width)
    }
}

impl fmt::Display for TimeTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.averages.rows().is_empty() {
            return writeln!(f, "no spans were recorded");
        }
        self.table().write(f)
    }
}

impl Line {
    /// Returns a text of the row, if it is one.
    fn known(&self, text: fn(&Average) -> String) -> Option<String> {
        (!self.is_folded).then(|| text(&self.row))
    }
}

/// Returns the lines of the tree of these rows, each of which has the index of the row around it. Small rows are folded
/// if `most` is limited, and so many that no more than `most` are left.
fn lines(rows: Vec<(Average, Option<usize>)>, most: usize) -> Vec<Line> {
    let all_gpu: Duration = rows.iter().map(|(row, _)| row.self_gpu).sum();
    let own = |row: &Average| row.total_percent.max(percent_of(row.total_gpu, all_gpu));
    let mut shares: Vec<f64> = rows.iter().map(|(row, _)| own(row)).collect();
    // Rows of one depth are sorted by time, and come after what is around them.
    let (mut inner, mut roots) = (vec![Vec::new(); rows.len()], Vec::new());
    for (index, (_, parent)) in rows.iter().enumerate().rev() {
        match parent {
            Some(parent) => {
                inner[*parent].push(index);
                // What works for a span on another thread may take longer.
                shares[*parent] = shares[*parent].max(shares[index]);
            }
            None => roots.push(index),
        }
    }
    let mut sorted = shares.clone();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let small = if most == usize::MAX {
        0.0
    } else {
        sorted.get(most.saturating_sub(1)).map_or(SMALL, |least| least.max(SMALL))
    };
    let mut rows: Vec<Average> = rows.into_iter().map(|(row, _)| row).collect();
    let mut lines = Vec::with_capacity(rows.len());
    // The next line comes last.
    let mut next: Vec<(usize, Next)> = Vec::new();
    let push = |depth: usize, indices: Vec<usize>, next: &mut Vec<(usize, Next)>| {
        let (folded, shown): (Vec<_>, Vec<_>) = indices.iter().partition(|&&index| shares[index] < small);
        // One line takes as much room as the one that stands for it.
        if folded.len() > 1 {
            next.push((depth, Next::Folded(folded)));
            next.extend(shown.into_iter().map(|index| (depth, Next::Row(index))));
        } else {
            next.extend(indices.into_iter().map(|index| (depth, Next::Row(index))));
        }
    };
    push(0, roots, &mut next);
    while let Some((depth, line)) = next.pop() {
        let indent = "  ".repeat(depth);
        match line {
            Next::Row(index) => {
                if shares[index] >= small {
                    push(depth + 1, std::mem::take(&mut inner[index]), &mut next);
                }
                let row = std::mem::take(&mut rows[index]);
                lines.push(Line { label: format!("{indent}{}", row.name), row, is_folded: false });
            }
            Next::Folded(indices) => {
                let total = |time: fn(&Average) -> Duration| indices.iter().map(|&index| time(&rows[index])).sum();
                let (total_cpu, total_gpu) = (total(|row| row.total_cpu), total(|row| row.total_gpu));
                let label = format!("{indent}… {} more", indices.len());
                lines.push(Line {
                    label,
                    row: Average { total_cpu, total_gpu, ..Average::default() },
                    is_folded: true,
                });
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use crate::{
        report::Report,
        trace::sample::{set_caller, spans_trace},
    };

    #[test]
    fn spans_are_rows_by_path_and_small_ones_are_folded() {
        let mut spans = Vec::new();
        for step in 0..2_u64 {
            let (start, outer) = (2_000 * step, spans.len());
            let mut add = |name, parent: Option<usize>, from, to| {
                spans.push((name, parent, start + from, start + to));
            };
            add("step", None, 0, 1_000);
            add("forward", Some(outer), 0, 600);
            add("attention", Some(outer + 1), 0, 400);
            add("linear", Some(outer + 2), 0, 100);
            add("linear", Some(outer + 2), 100, 300);
            add("mlp", Some(outer + 1), 400, 550);
            add("linear", Some(outer + 5), 400, 500);
            // Small ones: two are folded, and one would take as much room folded.
            add("norm", Some(outer + 1), 550, 555);
            add("mask", Some(outer + 1), 555, 558);
            add("backward", Some(outer), 600, 990);
            add("clip", Some(outer + 9), 600, 601);
        }
        let report = Report::of([&spans_trace(&spans)]);
        let expected = "\
-------------  ----------  -------  ----------  ----------
Name           Total time  Total %   Self time  # of Calls
-------------  ----------  -------  ----------  ----------
step             2.000 ms  100.0 %   20.000 µs           2
  forward        1.200 ms   60.0 %   84.000 µs           2
    attention  800.000 µs   40.0 %  200.000 µs           2
      linear   600.000 µs   30.0 %  600.000 µs           4
    mlp        300.000 µs   15.0 %  100.000 µs           2
      linear   200.000 µs   10.0 %  200.000 µs           2
    … 2 more    16.000 µs        –           –           –
  backward     780.000 µs   39.0 %  778.000 µs           2
    clip         2.000 µs    0.1 %    2.000 µs           2
-------------  ----------  -------  ----------  ----------
";
        assert_eq!(report.time_tree().to_string(), expected);
        // Programs get all rows.
        let rows = report.time_tree().rows();
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        let expected = ["step", "forward", "attention", "linear", "mlp", "linear", "norm", "mask", "backward", "clip"];
        assert_eq!(names, expected);
        assert_eq!(rows[5].stack, ["mlp", "forward", "step"]);
        let shallow = report.time_tree().depth(2).to_string();
        assert!(shallow.contains("\n  backward ") && shallow.ends_with("7 more rows\n"), "{shallow}");
        assert_eq!(report.time_tree().limit(1).rows().len(), 1);
        // Past the limit, rows are folded where they are.
        let few = report.time_tree().limit(3).to_string();
        assert!(few.contains("\n  backward ") && few.contains("\n    … 3 more   316.000 µs"), "{few}");
        // Indentation stays where there is no room for names.
        let long = [("step", None, 0, 100), ("a::name::that::is::so::long::that::it::is::cut", Some(0), 0, 90)];
        let narrow = Report::of([&spans_trace(&long)]).time_tree().width(70).to_string();
        assert!(narrow.contains("\n  a::name"), "{narrow}");
    }

    #[test]
    fn what_works_for_a_small_span_is_shown() {
        let mut trace = spans_trace(&[
            ("step", None, 0, 10_000),
            ("ask", Some(0), 0, 5),
            ("look", Some(0), 5, 9),
            ("work", None, 0, 0),
        ]);
        trace.spans[3].end = crate::trace::sample::at(9_000);
        trace.spans[3].self_nanos = 9_000_000;
        set_caller(&mut trace, 3, Some(1));
        let text = Report::of([&trace]).time_tree().to_string();
        assert!(text.contains("\n  ask ") && text.contains("\n    work "), "{text}");
    }

    #[test]
    fn nothing_is_an_empty_tree() {
        assert!(Report::default().time_tree().rows().is_empty());
        assert_eq!(Report::default().time_tree().to_string(), "no spans were recorded\n");
    }
}
