//! The first table of a comparison: the step, counts, memory.

use super::{Diff, side::Side, text};
use crate::{json::json, output::Section};
use kernspan::{
    analysis::CountKind,
    report::{Comparison, Drift, PeakChange, Table, TimeChange, units},
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
    /// The interval in which the change is with a confidence of 99 %.
    pub(super) interval: Option<String>,
    pub(super) outcome: Option<String>,
}

/// Returns the table of the step, what it does, and the most memory in use. `part` is the part of a step that is no
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

/// Returns the step, what it does, and the most memory in use.
pub(super) fn rows(diff: &Diff, part: f64) -> Vec<Row> {
    let comparison = &diff.comparison;
    let mut rows = vec![step("step", comparison, &comparison.whole_step, part)];
    if has_drifted(&comparison.drift) {
        rows.push(step("step without drift", comparison, &comparison.step, part));
    }
    rows.extend(CountKind::ALL.iter().filter_map(|&kind| count(&diff.sides, comparison, kind)));
    rows.extend(comparison.memory.iter().map(peak));
    rows
}

/// Says what is compared: `before: runs/monday (2 runs, 40 steps); after: …`.
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
        after: text::time(time.after.value),
        change: Some(text::signed(change.value)),
        percent: text::percent(change.value, before),
        interval: Some(text::interval(&change)),
        outcome: Some(comparison.outcome(time, part).to_string()),
    }
}

/// Returns a count of a step, if there is any.
fn count(sides: &[Side; 2], comparison: &Comparison, kind: CountKind) -> Option<Row> {
    let [before, after] = [sides[0].count(kind), sides[1].count(kind)];
    if before == 0.0 && after == 0.0 {
        return None;
    }
    // Ranges that have values in common are no change.
    let has_changed = comparison.counts.iter().any(|count| count.kind == kind);
    let sign = if after < before { '-' } else { '+' };
    Some(Row {
        name: kind.noun(true).to_owned(),
        before: text::amount(kind, before),
        after: text::amount(kind, after),
        change: has_changed.then(|| format!("{sign}{}", text::amount(kind, (after - before).abs()))),
        percent: has_changed.then(|| text::percent(after - before, before)).flatten(),
        interval: None,
        outcome: (!has_changed).then(|| "same".to_owned()),
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
        percent: has_changed.then(|| text::percent(after - before, before)).flatten(),
        interval: None,
        outcome: (!has_changed).then(|| "same".to_owned()),
    }
}

fn has_drifted(drift: &Drift) -> bool {
    drift.factor.low > 1.0 || drift.factor.high < 1.0
}

/// Returns what makes the comparison harder, and what was taken out of it.
pub(super) fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = comparison.notes.clone();
    for (place, drift) in [("on the host", &comparison.drift), ("on GPUs", &comparison.gpu_drift)] {
        if has_drifted(drift) {
            let factor = drift.factor;
            notes.push(format!(
                "drift: spans took {:.3} times as long {place} ({:.3} to {:.3}), \
                 which is taken out of the changes of spans",
                factor.value, factor.low, factor.high
            ));
        }
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
