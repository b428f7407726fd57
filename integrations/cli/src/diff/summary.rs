//! The first table of a comparison: the step, counts, memory.

use super::{Diff, EfficiencyChange, Side};
use crate::{achieved::signed, json::json, output::Section};
use kernspan::report::{Table, units};
use kernspan_check::{
    Comparison, CountKind,
    comparison::{Drift, PeakChange, TimeChange},
    text,
};
use serde::Serialize;

/// A quantity of a step before and after, as text.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) before: String,
    pub(super) after: String,
    pub(super) change: Option<String>,
    pub(super) percent: Option<String>,
    /// The 99 % confidence interval of the change.
    pub(super) interval: Option<String>,
    pub(super) outcome: Option<String>,
}

/// Returns the table of the step, what it does, and the peak memory. `part` is the fraction of a step that counts as no
/// change.
pub(super) fn section(diff: &Diff, part: f64) -> Section {
    let rows = rows(diff, part);
    let mut table = table(&rows);
    table.heading(sides(diff));
    notes(&diff.comparison).into_iter().for_each(|note| table.note(note));
    Section {
        title: "Difference".to_owned(),
        key: "summary",
        table: Some(table),
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

/// Returns the step, what it does, the peak memory, and what was achieved.
pub(super) fn rows(diff: &Diff, part: f64) -> Vec<Row> {
    let comparison = &diff.comparison;
    let has_drift = comparison.drift.is_notable();
    let name = if has_drift { "step, as measured" } else { "step" };
    let mut rows = vec![step(name, comparison, &comparison.whole_step, part)];
    if has_drift {
        rows.push(step("step, adjusted for drift", comparison, &comparison.step, part));
    }
    rows.extend(CountKind::ALL.iter().filter_map(|&kind| count(&diff.sides, comparison, kind)));
    rows.extend(comparison.memory.iter().map(peak));
    rows.extend(diff.efficiency.iter().map(figure));
    rows
}

/// Describes what is compared: `before: runs/monday (2 runs, 40 steps); after: …`.
fn sides(diff: &Diff) -> String {
    let counted = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let side = |side: &Side| {
        let (runs, steps) = (side.baseline.runs.len() as u64, side.baseline.steps());
        format!("{} ({}, {})", side.name, counted(runs, "run"), counted(steps, "step"))
    };
    format!("before: {}; after: {}", side(&diff.sides[0]), side(&diff.sides[1]))
}

fn step(name: &str, comparison: &Comparison, time: &TimeChange, part: f64) -> Row {
    let (before, change) = (time.before.value, time.change);
    Row {
        name: name.to_owned(),
        before: text::time(before),
        after: text::time(time.adjusted_after()),
        change: Some(text::signed(change.value)),
        percent: percent(change.value, before),
        interval: Some(text::interval(&change)),
        outcome: Some(comparison.outcome(time, part).to_string()),
    }
}

/// Formats a change in percent of the value before, `+5.0 %`, unless that is 0.
fn percent(change: f64, before: f64) -> Option<String> {
    (before != 0.0).then(|| format!("{:+.1} %", 100.0 * change / before))
}

/// Returns a count of a step, if there is any.
fn count(sides: &[Side; 2], comparison: &Comparison, kind: CountKind) -> Option<Row> {
    let [before, after] = [sides[0].count(kind), sides[1].count(kind)];
    let is_of_heap = matches!(kind, CountKind::HeapAllocations | CountKind::HeapBytes);
    let is_recorded = !is_of_heap || sides.iter().flat_map(|side| &side.baseline.runs).all(|run| run.heap);
    if !is_recorded || (before == 0.0 && after == 0.0) {
        return None;
    }
    // A count that varies between steps has not changed as long as the ranges of both sides overlap.
    let has_changed = comparison.counts.iter().any(|count| count.kind == kind);
    let is_same = before == after;
    let [shown_before, shown_after, difference] = kind.amounts([before, after, (after - before).abs()]);
    let sign = if after < before { '-' } else { '+' };
    Some(Row {
        name: kind.noun(true).to_owned(),
        before: shown_before,
        after: shown_after,
        change: (!is_same).then(|| format!("{sign}{difference}")),
        percent: (!is_same).then(|| percent(after - before, before)).flatten(),
        interval: None,
        outcome: match (is_same, has_changed) {
            (true, _) => Some("same".to_owned()),
            (false, true) => None,
            (false, false) => Some("varies from step to step".to_owned()),
        },
    })
}

fn peak(peak: &PeakChange) -> Row {
    let (before, after) = (peak.before as f64, peak.after as f64);
    let sign = if after < before { '-' } else { '+' };
    let has_changed = peak.before != peak.after;
    Row {
        name: format!("peak memory of GPU {}", peak.device),
        before: units::bytes(peak.before),
        after: units::bytes(peak.after),
        change: has_changed.then(|| format!("{sign}{}", units::bytes(peak.before.abs_diff(peak.after)))),
        percent: has_changed.then(|| percent(after - before, before)).flatten(),
        interval: None,
        outcome: (!has_changed).then(|| "same".to_owned()),
    }
}

/// Returns a figure of the results or of energy. Its noise is not known.
fn figure(figure: &EfficiencyChange) -> Row {
    let EfficiencyChange { name, before, after } = figure;
    let change = after - before;
    let has_changed = change != 0.0;
    let sign = if change > 0.0 { "+" } else { "" };
    Row {
        name: name.clone(),
        before: signed(*before),
        after: signed(*after),
        change: has_changed.then(|| format!("{sign}{}", signed(change))),
        // A rate that was negative has no percentage.
        percent: (has_changed && *before > 0.0).then(|| percent(change, *before)).flatten(),
        interval: None,
        outcome: (!has_changed).then(|| "same".to_owned()),
    }
}

/// Returns what makes the comparison harder, and what was adjusted for.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = comparison.notes.clone();
    let drifts = [("on the host", &comparison.drift), ("on GPUs", &comparison.gpu_drift)];
    let text = |(place, drift): &(&str, &Drift)| {
        let factor = drift.factor;
        format!("{:.2} times as long {place} ({:.2} to {:.2})", factor.value, factor.low, factor.high)
    };
    let drifts: Vec<_> = drifts.iter().filter(|(_, drift)| drift.is_notable()).map(text).collect();
    if !drifts.is_empty() {
        notes.push(format!("times of spans are adjusted for drift: all of them took {}", drifts.join(", ")));
    }
    notes
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::default();
    table.text("A step", rows, |row| row.name.clone());
    table.number("Before", rows, |row| row.before.clone());
    table.number("After", rows, |row| row.after.clone());
    table.number("Change", rows, |row| row.change.clone());
    table.number("Change %", rows, |row| row.percent.clone()).droppable(2);
    table.number("99 % interval", rows, |row| row.interval.clone()).droppable(1);
    table.text("", rows, |row| row.outcome.clone()).keep_start();
    table
}
