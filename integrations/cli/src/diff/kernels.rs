//! The table of kernels and copies.

use super::Diff;
use crate::{json::json, output::Section};
use kernspan::report::{Table, units};
use kernspan_check::{CountKind, comparison::KernelTimeChange, text};

/// Returns the table of kernels and copies that take more or less time, by a thousandth of the step, or that are
/// launched more or less often.
pub(super) fn section(diff: &Diff, limit: usize) -> Section {
    let mut rows = diff.kernels();
    let least = diff.comparison.step.before.value / 1000.0;
    rows.retain(|row| row.change.abs() > least || launches(row).0 != launches(row).1);
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Kernels and copies".to_owned(),
        key: "kernels",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no kernel or copy has changed",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn table(rows: &[KernelTimeChange]) -> Table {
    let mut table = Table::default();
    table.heading("Kernels and copies in a step, on average:".to_owned());
    table.text("Kernel", rows, |row| row.name.clone());
    table.text("", rows, |row| state(row).map(str::to_owned));
    table.number("Launches", rows, |row| row.before.map(|_| launch_texts(row)[0].clone())).droppable(3);
    table.number("After", rows, |row| row.after.map(|_| launch_texts(row)[1].clone())).droppable(4);
    table.number("CUDA time", rows, |row| row.before.map(|it| units::time(it.time))).droppable(5);
    table.number("After", rows, |row| row.after.map(|it| units::time(it.time))).droppable(6);
    table.number("Change", rows, |row| text::signed(row.change));
    table.number("A launch", rows, |row| row.before.map(|it| units::time(it.average))).droppable(1);
    table.number("After", rows, |row| row.after.map(|it| units::time(it.average))).droppable(2);
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
pub(super) fn state(kernel: &KernelTimeChange) -> Option<&'static str> {
    match (kernel.before, kernel.after) {
        (None, Some(_)) => Some("new"),
        (Some(_), None) => Some("gone"),
        _ => None,
    }
}
