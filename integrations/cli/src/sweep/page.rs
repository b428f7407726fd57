//! The page of a sweep.

use super::{
    Compared,
    pareto::Objective,
    table::{TrialRow, best_line, goal_line, rows},
};
use crate::{
    achieved::{Achieved, signed},
    html::{Page, Table},
};
use serde_json::{Value, json};

/// Returns the page: the best value, charts of throughput, step and memory, which values are not dominated, and the
/// table.
pub(super) fn page(compared: &Compared<'_>) -> Page {
    let Compared { name, trials, unit, choice, pareto, goal, missing, .. } = compared;
    let (name, unit) = (*name, *unit);
    let mut page = Page::new(&format!("Sweep of {name}"));
    let best = choice.best.map(|best| best_line(name, &trials[best], trials));
    let best = best.iter().map(|line| ("best", line.trim_start_matches("best: ")));
    let why = choice.why.iter().enumerate().map(|(index, line)| (if index == 0 { "why" } else { "" }, line.as_str()));
    let missing = missing.iter().map(|line| ("missing", line.as_str()));
    let goal_line = goal_line(compared);
    let of_goal = goal_line.iter().map(|line| ("goal", line.as_str()));
    let items: Vec<_> = best.chain(why).chain(of_goal).chain(missing).collect();
    page.push("overview", "Overview", "facts", json!({"items": items, "notes": []}));
    let rows = rows(compared);
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
        series("joules", "rate", rows.iter().map(|row| json!(row.joules)).collect()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !charts.is_empty() {
        let labels: Vec<_> = trials.iter().map(|trial| &trial.value).collect();
        page.push("charts", name, "lines", json!({"labels": labels, "charts": charts, "marked": choice.best}));
    }
    if let [throughput, others @ ..] = pareto.objectives.as_slice() {
        let points = |other: &Objective| -> Value {
            let measured = trials.iter().enumerate().filter(|(_, trial)| trial.is_measured());
            let place = |index: usize| [other.of_trials[index], throughput.of_trials[index]];
            measured.map(|(at, trial)| json!([trial.value, place(at)[0], place(at)[1], pareto.of_trial(at)])).collect()
        };
        let axis = |objective: &Objective| json!([objective.name, objective.unit]);
        let chart = |other| json!({"x": axis(other), "y": axis(throughput), "points": points(other)});
        let note = format!("Filled: no other value is as good in {} and better in one of them.", pareto.names());
        let charts: Vec<_> = others.iter().map(chart).collect();
        page.push("pareto", "Trade-offs", "scatter", json!({"charts": charts, "note": note}));
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
    table.column(("Joules", "rate", "for an item, or for a step"), &rows, |row| json!(row.joules));
    table.column(("By price", "rate", "items, or steps, for the price"), &rows, |row| json!(row.per_price));
    if let Some(goal) = goal {
        let counter = &goal.counter;
        let mut column = |title: String, help, of: fn(&Achieved) -> Option<f64>| {
            let cell = |row: &TrialRow<'_>| json!(row.goal.and_then(of).map(signed));
            table.column((&title, "word", help), &rows, cell);
        };
        column(counter.clone(), "the last value", |it| Some(it.last));
        column(format!("best {counter}"), "", |it| Some(it.best));
        column(format!("{counter}/s"), "how much better it became in a second", |it| it.per_second);
        column(format!("{counter}/J"), "how much better it became by a joule", |it| it.per_joule);
        column(format!("{counter}/price"), "how much better it became for the price", |it| it.per_price);
    }
    table.column(("Launches", "rate", "in a step"), &rows, |row| json!(row.measured.and_then(|it| it.launches)));
    table.column(("Bottleneck", "word", ""), &rows, |row| json!(row.measured.and_then(|it| it.bottleneck)));
    page.push("runs", "Runs", "table", table.members());
    page
}
