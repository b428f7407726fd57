//! The table of what explains a difference.

use super::text;
use crate::{json::json, output::Section};
use kernspan::report::{Comparison, Explanation, Table};

/// An explanation, and the step that it is a part of.
struct Row {
    explanation: Explanation,
    /// The change in percent of the step before.
    percent: f64,
}

/// Returns the table of explanations that are no noise, those first that explain the most.
pub(super) fn section(comparison: &Comparison, limit: usize) -> Section {
    let all = comparison.explanations();
    let json = all.iter().take(limit).map(json).collect();
    let (sure, unsure): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| text::is_sure(&it.change));
    let row =
        |explanation: Explanation| Row { percent: comparison.percent_of_step(explanation.change.value), explanation };
    let left_out = sure.len().saturating_sub(limit);
    let rows: Vec<_> = sure.into_iter().take(limit).map(row).collect();
    let noise = match unsure.len() {
        0 => String::new(),
        1 => "1 smaller or less sure change of a span is not listed, as it may be noise".to_owned(),
        count => format!("{count} smaller or less sure changes of spans are not listed, as they may be noise"),
    };
    Section {
        title: "Explanations".to_owned(),
        key: "explanations",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no span has surely changed by a thousandth of the step",
        rows: json,
        below: noise,
        ..Section::default()
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::default();
    table.heading("What explains the difference of the step:".to_owned());
    table.number("Change", rows, |row| text::signed(row.explanation.change.value));
    table.number("Of a step", rows, |row| format!("{:+.1}%", row.percent)).droppable(3);
    table.number("99 % interval", rows, |row| text::interval(&row.explanation.change)).droppable(1);
    table.text("On", rows, |row| (if row.explanation.is_gpu { "GPU" } else { "host" }).to_owned());
    table.text("Span (self time)", rows, |row| row.explanation.path.join(" > "));
    table.text("More or fewer", rows, |row| counts(&row.explanation)).keep_start();
    table.text("Place", rows, |row| row.explanation.location.as_deref().map(file_name)).droppable(2);
    table
}

/// Returns the counts that have changed: `+10 calls, +40 B copied`.
fn counts(explanation: &Explanation) -> Option<String> {
    let counts: Vec<_> = explanation.counts.iter().map(text::count).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

/// Returns a place without the folders of its file.
fn file_name(place: &str) -> String {
    place.rsplit('/').next().unwrap_or(place).to_owned()
}
