//! The table of what explains a difference.

use crate::{json::json, output::Section};
use kernspan::report::Table;
use kernspan_check::{
    Comparison,
    comparison::{CountChange, Explanation},
    text,
};

/// Returns the table of explanations that are no noise, those first that explain the most.
pub(super) fn section(comparison: &Comparison, limit: usize) -> Section {
    let all = comparison.explanations();
    let json = all.iter().take(limit).map(json).collect();
    let (sure, unsure): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| it.change.is_sure());
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
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no span has surely changed by a thousandth of the step",
        rows: json,
        below: noise,
        ..Section::default()
    }
}

fn table(rows: &[Explanation]) -> Table {
    let mut table = Table::default();
    let is_critical = rows.iter().any(|row| row.is_critical);
    let on_path = if is_critical { " (on the critical path)" } else { "" };
    table.heading(format!("What explains the difference of the step{on_path}:"));
    table.number("Change", rows, |row| text::signed(row.change.value));
    table.number("Of a step", rows, |row| format!("{:+.1}%", row.percent())).droppable(3);
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

/// Returns a place without the folders of its file.
fn file_name(place: &str) -> String {
    place.rsplit('/').next().unwrap_or(place).to_owned()
}
