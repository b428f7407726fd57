//! The table of spans, aligned by path.

use crate::{json::json, output::Section};
use kernspan::report::Table;
use kernspan_check::{
    Comparison,
    comparison::{Presence, SpanChange, TimeChange},
    text,
};
use std::cmp::Reverse;

/// Returns the table of the spans that change the most, in the order of the tree.
pub(super) fn section(comparison: &Comparison, limit: usize) -> Section {
    let rows = most_changed(&comparison.spans, limit);
    let left_out = comparison.spans.len().saturating_sub(rows.len());
    Section {
        title: "Spans".to_owned(),
        key: "spans",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no spans were recorded in whole steps",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns the spans that change the most, with or without those in them, in the order of the tree.
fn most_changed(spans: &[SpanChange], limit: usize) -> Vec<&SpanChange> {
    let size = |span: &SpanChange| {
        let times = [&span.total_host, &span.total_gpu, &span.host, &span.gpu, &span.background];
        times.iter().map(|time| time.change.value.abs()).fold(0.0, f64::max)
    };
    let mut order: Vec<_> = (0..spans.len()).collect();
    order.sort_by_key(|&index| Reverse(size(&spans[index]) as u64));
    order.truncate(limit);
    order.sort_unstable();
    order.into_iter().map(|index| &spans[index]).collect()
}

fn table(rows: &[&SpanChange]) -> Table {
    let mut table = Table::default();
    table.heading("Spans in a step, with those in them:".to_owned());
    table.note("~ may be noise: 0 is in the 99 % interval of the change".to_owned());
    table.text("Span", rows, |row| format!("{}{}", "  ".repeat(row.path.len().saturating_sub(1)), row.name()));
    table.text("", rows, |row| state(&row.presence));
    table.number("Before", rows, |row| time(row.total_host.before.value)).droppable(5);
    table.number("After", rows, |row| time(row.total_host.adjusted_after())).droppable(6);
    table.number("Change", rows, |row| change(&row.total_host));
    table.number("Self change", rows, |row| change(&row.host)).droppable(4);
    table.number("CUDA before", rows, |row| time(row.total_gpu.before.value)).droppable(2);
    table.number("CUDA after", rows, |row| time(row.total_gpu.adjusted_after())).droppable(3);
    table.number("CUDA change", rows, |row| change(&row.total_gpu)).droppable(7);
    table.number("Other threads", rows, |row| change(&row.background)).droppable(1);
    table
}

/// Returns whether the span is new, gone, or called from another place.
pub(super) fn state(presence: &Presence) -> Option<String> {
    match presence {
        Presence::Added => Some("new".to_owned()),
        Presence::Gone => Some("gone".to_owned()),
        Presence::Moved { from } => Some(format!("was in {}", from[..from.len().saturating_sub(1)].join(" > "))),
        _ => None,
    }
}

fn time(nanos: f64) -> Option<String> {
    (nanos > 0.0).then(|| text::time(nanos))
}

fn change(time: &TimeChange) -> Option<String> {
    let sign = if time.change.is_sure() { "" } else { "~" };
    (!time.is_nothing()).then(|| format!("{sign}{}", text::signed(time.change.value)))
}
