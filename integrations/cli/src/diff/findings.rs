//! The table of findings that are new or gone.

use crate::{json::json, output::Section};
use kernspan::report::{Table, units};
use kernspan_check::{Comparison, baseline::BaselineFinding};
use serde::Serialize;

/// A finding that only one side has.
#[derive(Serialize)]
struct Row<'a> {
    state: &'static str,
    #[serde(flatten)]
    finding: &'a BaselineFinding,
}

/// Returns the table of findings, the new ones first.
pub(super) fn section(comparison: &Comparison, limit: usize) -> Section {
    let new = comparison.new_findings.iter().map(|finding| Row { state: "new", finding });
    let gone = comparison.gone_findings.iter().map(|finding| Row { state: "gone", finding });
    let mut rows: Vec<_> = new.chain(gone).collect();
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Findings".to_owned(),
        key: "findings",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no finding is new or gone",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    let mut table = Table::default();
    table.heading("Findings that are new or gone (see kernspan advise):".to_owned());
    table.text("", rows, |row| row.state.to_owned());
    table.number("Saves", rows, |row| units::time(row.finding.saving));
    table.text("Finding", rows, |row| row.finding.title.clone()).keep_start();
    table.text("Kind", rows, |row| row.finding.kind.clone()).droppable(1);
    table
}
