//! The table of `steps --breakdown`: where the time of each step went.

use crate::{input::Read, json::json, output::Section};
use kernspan::{
    analysis::{Analysis, StepBreakdown, StepParts},
    report::{Table, units},
};
use serde::Serialize;
use std::time::Duration;

/// A step, and where its time went on one GPU.
#[derive(Serialize)]
struct BreakdownRow<'a> {
    /// The file, if there are several.
    file: Option<&'a str>,
    #[serde(skip)]
    short_file: Option<&'a str>,
    #[serde(flatten)]
    step: StepBreakdown<'a>,
}

/// Returns the table of steps, with the share of each part below it.
pub(crate) fn section(read: &Read, limit: usize) -> Section {
    let mut rows = rows(read);
    let shares = shares(&rows);
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Steps".to_owned(),
        key: "steps",
        table: (!rows.is_empty()).then(|| table(&rows, read.folder.as_deref(), shares).left_out(left_out)),
        empty: "no whole step was recorded",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn rows(read: &Read) -> Vec<BreakdownRow<'_>> {
    let mut rows = Vec::new();
    for source in &read.sources {
        let short_file = source.short_name.as_deref();
        let file = short_file.map(|_| source.name.as_str());
        let steps = source.traces.iter().flat_map(|trace| Analysis::of(trace).step_breakdown().to_vec());
        rows.extend(steps.map(|step| BreakdownRow { file, short_file, step }));
    }
    rows
}

/// Returns the line with the share of each part in the time of all steps.
fn shares(rows: &[BreakdownRow<'_>]) -> String {
    let parts: StepParts = rows.iter().map(|row| row.step.parts).sum();
    let all = parts.total().as_secs_f64();
    let share = |time: Duration| units::percent(100.0 * time.as_secs_f64() / all);
    let parts: Vec<_> = parts.iter().map(|(part, time)| format!("{} {}", part.as_str(), share(time))).collect();
    format!("of the time of all steps: {}", parts.join(", "))
}

fn table(rows: &[BreakdownRow<'_>], folder: Option<&str>, shares: String) -> Table {
    let mut table = Table::default();
    table.note(shares);
    folder.into_iter().for_each(|folder| table.heading(format!("Files in {folder}:")));
    if rows.iter().any(|row| row.short_file.is_some()) {
        table.text("File", rows, |row| row.short_file.map(str::to_owned));
    }
    table.number("Step", rows, |row| row.step.step.to_string());
    table.number("Duration", rows, |row| units::column_time(row.step.duration));
    table.number("GPU", rows, |row| row.step.device.map(|device| device.to_string())).droppable(2);
    table.number("Compute", rows, |row| time(row.step.parts.compute));
    table.number("Comm.", rows, |row| time(row.step.parts.exposed_communication));
    table.number("Copies", rows, |row| time(row.step.parts.exposed_copies)).droppable(5);
    table.number("Gaps", rows, |row| time(row.step.parts.between_kernels)).droppable(8);
    table.number("Input", rows, |row| time(row.step.parts.input));
    table.number("Sync", rows, |row| time(row.step.parts.synchronizing)).droppable(6);
    table.number("Launching", rows, |row| time(row.step.parts.launching)).droppable(7);
    table.number("Host", rows, |row| time(row.step.parts.host));
    table.number("Other", rows, |row| time(row.step.parts.other)).droppable(4);
    let spans = table.text("Host in", rows, |row| longest_spans(&row.step));
    spans.keep_start();
    spans.droppable(1);
    table
}

/// Returns a time for people, or `None` for zero: a part that is zero in all steps gets no column.
fn time(time: Duration) -> Option<String> {
    (!time.is_zero()).then(|| units::column_time(time))
}

/// Returns the spans in which the host spent the most time while the GPU was idle.
fn longest_spans(step: &StepBreakdown<'_>) -> Option<String> {
    const SPANS: usize = 3;
    let spans = step.host_by_span.iter().take(SPANS).map(|(name, time)| format!("{name} {}", units::time(*time)));
    (!step.host_by_span.is_empty()).then(|| spans.collect::<Vec<_>>().join(", "))
}
