//! The callers and callees of a span.

use crate::{fault::Fault, json::json, output::Section};
use kernspan::{
    Report,
    report::{Average, Table, units},
};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Whether the callers or the callees of a span are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Callers,
    Callees,
}

/// All calls from one span name to another.
#[derive(Default, Serialize)]
struct Calls {
    /// The name of the span at the other end.
    name: String,
    /// Whole calls.
    calls: u64,
    /// Calls cut by the edge of a window.
    cut_calls: u64,
    self_cpu: Duration,
    total_cpu: Duration,
    self_gpu: Duration,
    total_gpu: Duration,
}

/// The name shown as the caller of top-level spans.
const NO_SPAN: &str = "[no span]";

/// Returns the table of the callers or callees of spans with this name, longest first.
pub(crate) fn section(report: &Report, name: &str, direction: Direction, limit: usize) -> Result<Section, Fault> {
    let edges = report.averages().group_by_stack(1).limit(usize::MAX).rows();
    if !edges.iter().any(|edge| edge.name == name) {
        return Err(Fault::Failed(not_found(&edges, name)));
    }
    let mut sums: BTreeMap<&str, Calls> = BTreeMap::new();
    for edge in &edges {
        let caller = edge.stack.first().map(String::as_str);
        let other = match direction {
            Direction::Callers if edge.name == name => caller.unwrap_or(NO_SPAN),
            Direction::Callees if caller == Some(name) => edge.name.as_str(),
            _ => continue,
        };
        sums.entry(other).or_default().add(edge);
    }
    let named = |(name, calls): (&str, Calls)| Calls { name: name.to_owned(), ..calls };
    let mut rows: Vec<_> = sums.into_iter().map(named).collect();
    rows.sort_by_key(|row| Reverse(row.total_cpu));
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let (key, title, empty) = match direction {
        Direction::Callers => ("callers", format!("{name} is called from"), "no span calls it"),
        Direction::Callees => ("callees", format!("{name} calls"), "it calls no other span"),
    };
    Ok(Section {
        key,
        table: (!rows.is_empty()).then(|| table(&rows, &title).left_out(left_out)),
        title,
        empty,
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    })
}

impl Calls {
    fn add(&mut self, edge: &Average) {
        self.calls += edge.calls;
        self.cut_calls += edge.cut_calls;
        self.self_cpu += edge.self_cpu;
        self.total_cpu += edge.total_cpu;
        self.self_gpu += edge.self_gpu;
        self.total_gpu += edge.total_gpu;
    }
}

fn table(rows: &[Calls], title: &str) -> Table {
    let mut table = Table::default();
    table.heading(format!("{title}:"));
    table.text("Name", rows, |row| row.name.clone());
    table.number("# of Calls", rows, |row| units::calls(row.calls, row.cut_calls));
    table.number("Self time", rows, |row| units::column_time(row.self_cpu));
    table.number("Total time", rows, |row| units::column_time(row.total_cpu));
    if rows.iter().any(|row| !row.total_gpu.is_zero()) {
        table.number("Self CUDA", rows, |row| units::column_time(row.self_gpu)).droppable(1);
        table.number("CUDA total", rows, |row| units::column_time(row.total_gpu)).droppable(2);
    }
    table
}

/// Returns the message that no span has this name, with similar names.
fn not_found(edges: &[Average], name: &str) -> String {
    let part = name.to_lowercase();
    let mut similar: Vec<_> = edges.iter().map(|edge| edge.name.as_str()).collect();
    similar.retain(|name| name.to_lowercase().contains(&part));
    similar.sort_unstable();
    similar.dedup();
    match similar.as_slice() {
        [] => format!("no span is named {name:?}"),
        some => format!("no span is named {name:?}; similar names: {}", some[..some.len().min(5)].join(", ")),
    }
}
