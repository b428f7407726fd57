//! The page of a sweep.

use super::{
    choice::Choice,
    table::{best_line, rows},
    trial::Trial,
};
use crate::html::{Page, Table};
use serde_json::{Value, json};

/// Returns the page: the best value, charts of throughput, step and memory, and the table.
pub(super) fn page(name: &str, trials: &[Trial], items_known: bool, choice: &Choice) -> Page {
    let mut page = Page::new(&format!("Sweep of {name}"));
    let best = choice.best.map(|best| best_line(name, &trials[best], trials));
    let best = best.iter().map(|line| ("best", line.trim_start_matches("best: ")));
    let why = choice.why.iter().enumerate().map(|(index, line)| (if index == 0 { "why" } else { "" }, line.as_str()));
    let items: Vec<_> = best.chain(why).collect();
    page.push("overview", "Overview", "facts", json!({"items": items, "notes": []}));
    let rows = rows(trials, choice);
    let unit = if items_known { "items/s" } else { "steps/s" };
    let series = |title: &str, unit: &str, values: Vec<Value>| {
        let is_known = values.iter().any(|value| !value.is_null());
        is_known.then(|| json!({"title": title, "unit": unit, "values": values}))
    };
    let of = |measure: fn(&super::trial::Measured) -> Value| -> Vec<Value> {
        rows.iter().map(|row| row.measured.map_or(Value::Null, measure)).collect()
    };
    let charts: Vec<_> = [
        series(unit, "rate", rows.iter().map(|row| json!(row.throughput)).collect()),
        series("step (median)", "time", of(|it| json!(it.median.as_nanos() as u64))),
        series("GPU memory (peak)", "memory", of(|it| json!(it.peak_memory))),
        series("GPU busy", "percent", of(|it| json!(it.gpu_busy))),
        series("MFU", "share", of(|it| json!(it.mfu))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !charts.is_empty() {
        let labels: Vec<_> = trials.iter().map(|trial| &trial.value).collect();
        page.push("charts", name, "lines", json!({"labels": labels, "charts": charts, "marked": choice.best}));
    }
    let mut table = Table::default();
    let nanos = |time: std::time::Duration| json!(time.as_nanos() as u64);
    table.column((name, "word", ""), &rows, |row| json!(row.value));
    table.column(("", "word", ""), &rows, |row| {
        json!(row.problem.or(row.is_best.then_some("best")).unwrap_or_default())
    });
    table.column(("Steps", "number", "that were recorded"), &rows, |row| json!(row.measured.map(|it| it.steps)));
    for (title, time) in [
        ("Step p50", (|it| it.median) as fn(&super::trial::Measured) -> std::time::Duration),
        ("p25", |it| it.lower_quartile),
        ("p75", |it| it.upper_quartile),
    ] {
        table.column((title, "time", ""), &rows, |row| row.measured.map_or(Value::Null, |it| nanos(time(it))));
    }
    table.column((unit, "rate", "by the median step"), &rows, |row| json!(row.throughput));
    table.column(("Gain %", "word", "over the row above"), &rows, |row| {
        json!(row.gain.map(|gain| format!("{gain:+.1}")))
    });
    table.column(("GPU busy", "percent", ""), &rows, |row| json!(row.measured.and_then(|it| it.gpu_busy)));
    table.column(("MFU", "share", ""), &rows, |row| json!(row.measured.and_then(|it| it.mfu)));
    table.column(("GPU memory", "memory", ""), &rows, |row| json!(row.measured.and_then(|it| it.peak_memory)));
    table.column(("Launches", "rate", "in a step"), &rows, |row| json!(row.measured.and_then(|it| it.launches)));
    table.column(("Bottleneck", "word", ""), &rows, |row| json!(row.measured.and_then(|it| it.bottleneck)));
    page.push("runs", "Runs", "table", table.members());
    page
}
