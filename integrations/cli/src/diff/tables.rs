//! The tables of a comparison after the first: explanations, spans, kernels and findings.

use super::Diff;
use crate::{json::json, output::Section};
use kernspan::report::{Table, units};
use kernspan_check::{
    Comparison, CountKind,
    baseline::BaselineFinding,
    comparison::{CountChange, Explanation, KernelTimeChange, Presence, SpanChange, TimeChange},
    text,
};
use serde::Serialize;
use std::cmp::Reverse;

/// Returns the table of explanations that are not noise, largest first.
pub(super) fn explanations(comparison: &Comparison, limit: usize) -> Section {
    let all = comparison.explanations();
    let json = all.iter().take(limit).map(json).collect();
    let (sure, unsure): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.is_sure);
    let left_out = sure.len().saturating_sub(limit);
    let rows: Vec<_> = sure.into_iter().take(limit).collect();
    let noise = match unsure.len() {
        0 => String::new(),
        1 => "1 smaller or less sure change of a span is not listed, as it may be noise".to_owned(),
        count => format!("{count} smaller or less sure changes of spans are not listed, as they may be noise"),
    };
    Section {
        title: "Explanations".to_owned(),
        key: "explanations",
        table: (!rows.is_empty()).then(|| explanation_table(&rows).left_out(left_out)),
        empty: "no span has certainly changed by a thousandth of the step",
        rows: json,
        below: noise,
        ..Section::default()
    }
}

fn explanation_table(rows: &[Explanation]) -> Table {
    let mut table = Table::default();
    let is_critical = rows.iter().any(|row| row.is_critical);
    let on_path = if is_critical { " (on the critical path)" } else { "" };
    table.heading(format!("What explains the difference of the step{on_path}:"));
    table.number("Change", rows, |row| text::signed(row.change.value));
    table.number("Of a step", rows, |row| format!("{:+.1} %", row.percent())).droppable(3);
    table.number("99 % interval", rows, |row| text::interval(&row.change)).droppable(1);
    table.text("On", rows, |row| (if row.is_gpu { "GPU" } else { "host" }).to_owned());
    table.text("Span (self time)", rows, |row| row.path.join(" > "));
    table.text("More or fewer", rows, counts).keep_start();
    table.text("Place", rows, |row| row.location.as_deref().map(file_name)).droppable(2);
    table
}

/// Returns the counts that have changed: `+10 calls, +40 B copied`.
fn counts(explanation: &Explanation) -> Option<String> {
    let counts: Vec<_> = explanation.counts.iter().map(CountChange::signed).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// Returns a source location without the folders of its file.
fn file_name(place: &str) -> String {
    place.rsplit('/').next().unwrap_or(place).to_owned()
}

/// Returns the table of the spans that change the most, in tree order.
pub(super) fn spans(comparison: &Comparison, limit: usize) -> Section {
    let rows = most_changed(&comparison.spans, limit);
    let left_out = comparison.spans.len().saturating_sub(rows.len());
    Section {
        title: "Spans".to_owned(),
        key: "spans",
        table: (!rows.is_empty()).then(|| span_table(&rows).left_out(left_out)),
        empty: "no spans were recorded in whole steps",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns the spans that change the most, with or without nested spans, in tree order.
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

fn span_table(rows: &[&SpanChange]) -> Table {
    let mut table = Table::default();
    table.heading("Spans in a step, with those in them:".to_owned());
    table.note("~ may be noise; a change is the self change and those of the spans in it".to_owned());
    table.text("Span", rows, |row| format!("{}{}", "  ".repeat(row.path.len().saturating_sub(1)), row.name()));
    table.text("", rows, |row| span_state(&row.presence));
    table.number("Before", rows, |row| some_time(row.total_host.before.value)).droppable(5);
    table.number("After", rows, |row| some_time(row.total_host.adjusted_after())).droppable(6);
    table.number("Change", rows, |row| some_change(&row.total_host));
    table.number("Self change", rows, |row| some_change(&row.host)).droppable(4);
    table.number("CUDA before", rows, |row| some_time(row.total_gpu.before.value)).droppable(2);
    table.number("CUDA after", rows, |row| some_time(row.total_gpu.adjusted_after())).droppable(3);
    table.number("CUDA change", rows, |row| some_change(&row.total_gpu)).droppable(7);
    table.number("Other threads", rows, |row| some_change(&row.background)).droppable(1);
    table
}

/// Returns whether the span is new, gone, or called from another place.
pub(super) fn span_state(presence: &Presence) -> Option<String> {
    match presence {
        Presence::Added => Some("new".to_owned()),
        Presence::Gone => Some("gone".to_owned()),
        Presence::Moved { from } => Some(format!("was in {}", from[..from.len().saturating_sub(1)].join(" > "))),
        _ => None,
    }
}

fn some_time(nanos: f64) -> Option<String> {
    (nanos > 0.0).then(|| text::time(nanos))
}

fn some_change(time: &TimeChange) -> Option<String> {
    let sign = if time.is_sure() { "" } else { "~" };
    (!time.is_nothing()).then(|| format!("{sign}{}", text::signed(time.change.value)))
}

/// Returns the table of kernels and copies whose time changed by at least a thousandth of the step, or whose number of
/// launches changed.
pub(super) fn kernels(diff: &Diff, limit: usize) -> Section {
    let mut rows = diff.kernels();
    let least = diff.comparison.step.before.value / 1000.0;
    rows.retain(|row| row.change.abs() > least || launches(row).0 != launches(row).1);
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Kernels and copies".to_owned(),
        key: "kernels",
        table: (!rows.is_empty()).then(|| kernel_table(&rows).left_out(left_out)),
        empty: "no kernel or copy has changed",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn kernel_table(rows: &[KernelTimeChange]) -> Table {
    let mut table = Table::default();
    table.heading("Kernels and copies in a step, on average:".to_owned());
    table.text("Kernel", rows, |row| row.name.clone()).kernels();
    table.text("", rows, |row| kernel_state(row).map(str::to_owned));
    table.number("Launches", rows, |row| row.before.map(|_| launch_texts(row)[0].clone())).droppable(3);
    table.number("After", rows, |row| row.after.map(|_| launch_texts(row)[1].clone())).droppable(4);
    table.number("CUDA time", rows, |row| row.before.map(|it| units::column_time(it.time))).droppable(5);
    table.number("After", rows, |row| row.after.map(|it| units::column_time(it.time))).droppable(6);
    table.number("Change", rows, |row| text::signed(row.change));
    table.number("A launch", rows, |row| row.before.map(|it| units::column_time(it.average))).droppable(1);
    table.number("After", rows, |row| row.after.map(|it| units::column_time(it.average))).droppable(2);
    table
}

/// Returns the launches in a step before and after.
fn launches(kernel: &KernelTimeChange) -> (Option<f64>, Option<f64>) {
    (kernel.before.map(|it| it.launches), kernel.after.map(|it| it.launches))
}

/// Returns the launches in a step before and after, as text.
fn launch_texts(kernel: &KernelTimeChange) -> [String; 2] {
    let (before, after) = launches(kernel);
    CountKind::Kernels.amounts([before.unwrap_or(0.0), after.unwrap_or(0.0)])
}

/// Returns `new`, `gone`, or nothing.
pub(super) fn kernel_state(kernel: &KernelTimeChange) -> Option<&'static str> {
    match (kernel.before, kernel.after) {
        (None, Some(_)) => Some("new"),
        (Some(_), None) => Some("gone"),
        _ => None,
    }
}

/// A finding that only one side has.
#[derive(Serialize)]
struct FindingRow<'a> {
    state: &'static str,
    #[serde(flatten)]
    finding: &'a BaselineFinding,
}

/// Returns the table of findings, the new ones first.
pub(super) fn findings(comparison: &Comparison, limit: usize) -> Section {
    let new = comparison.new_findings.iter().map(|finding| FindingRow { state: "new", finding });
    let gone = comparison.gone_findings.iter().map(|finding| FindingRow { state: "gone", finding });
    let mut rows: Vec<_> = new.chain(gone).collect();
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Findings".to_owned(),
        key: "findings",
        table: (!rows.is_empty()).then(|| finding_table(&rows).left_out(left_out)),
        empty: "no finding is new or gone",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn finding_table(rows: &[FindingRow<'_>]) -> Table {
    let mut table = Table::default();
    table.heading("Findings that are new or gone (see kernspan advise):".to_owned());
    table.text("", rows, |row| row.state.to_owned());
    table.number("Saves", rows, |row| units::column_time(row.finding.saving));
    table.text("Finding", rows, |row| row.finding.title.clone()).keep_start();
    table.text("Kind", rows, |row| row.finding.kind.clone()).droppable(1);
    table
}
