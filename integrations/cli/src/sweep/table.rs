//! The table of a sweep.

use super::{
    choice::Choice,
    trial::{Measured, Trial},
};
use crate::{json::json, output::Section};
use kernspan::report::{Table, units};
use serde::Serialize;

/// A row of the table, and of JSON and CSV.
#[derive(Serialize)]
pub(super) struct TrialRow<'a> {
    pub(super) value: &'a str,
    pub(super) items: Option<f64>,
    /// Items per second, or steps per second if the items per step are unknown.
    pub(super) throughput: Option<f64>,
    /// The throughput in percent of that in the row above, minus 100.
    pub(super) gain: Option<f64>,
    pub(super) is_best: bool,
    pub(super) problem: Option<&'a str>,
    pub(super) measured: Option<&'a Measured>,
}

/// Returns the table, with the best value and the reasons below it.
pub(super) fn section(name: &str, trials: &[Trial], items_known: bool, choice: &Choice) -> Section {
    let rows = rows(trials, choice);
    let best = choice.best.map(|best| best_line(name, &trials[best], trials));
    let lines: Vec<_> = best.iter().chain(&choice.why).cloned().collect();
    let mut notes = lines.clone();
    if !items_known {
        notes.push("the number of items per step is unknown: set it with --items".to_owned());
    }
    Section {
        title: format!("Sweep of {name}"),
        key: "sweep",
        table: Some(table(name, &rows, items_known, notes)),
        rows: rows.iter().map(json).collect(),
        members: vec![
            ("variable", name.into()),
            ("best", choice.best.map(|best| trials[best].value.as_str()).into()),
            ("why", choice.why.clone().into()),
        ],
        marked: choice.best.into_iter().collect(),
        ..Section::default()
    }
}

pub(super) fn rows<'a>(trials: &'a [Trial], choice: &Choice) -> Vec<TrialRow<'a>> {
    let mut previous: Option<f64> = None;
    let row = |(index, trial): (usize, &'a Trial)| {
        let throughput = trial.throughput();
        let gain = throughput.zip(previous).map(|(throughput, previous)| 100.0 * (throughput / previous - 1.0));
        previous = throughput.or(previous);
        TrialRow {
            value: &trial.value,
            items: trial.items,
            throughput,
            gain,
            is_best: choice.best == Some(index),
            problem: trial.result.as_ref().err().map(String::as_str),
            measured: trial.result.as_ref().ok(),
        }
    };
    trials.iter().enumerate().map(row).collect()
}

/// Describes which value is the best, and which has the highest throughput if that is another.
pub(super) fn best_line(name: &str, best: &Trial, trials: &[Trial]) -> String {
    let unit = |trial: &Trial| if trial.items.is_some() { "items/s" } else { "steps/s" };
    let rate = |trial: &Trial| format!("{} {}", units::rate(trial.throughput().unwrap_or_default()), unit(trial));
    let of = |trial: &Trial| trial.throughput().unwrap_or_default();
    let highest = trials.iter().max_by(|a, b| of(a).total_cmp(&of(b))).filter(|highest| of(highest) > of(best));
    let more = highest.map(|highest| format!("; the highest is {} at {}", rate(highest), highest.value));
    format!("best: {name}={} with {}{}", best.value, rate(best), more.unwrap_or_default())
}

fn table(name: &str, rows: &[TrialRow<'_>], items_known: bool, notes: Vec<String>) -> Table {
    let mut table = Table::default();
    table.heading(format!("{name}:"));
    notes.into_iter().for_each(|note| table.note(note));
    table.number("Value", rows, |row| row.value.to_owned());
    table.number("Steps", rows, |row| row.measured.map(|it| it.steps.to_string())).droppable(3);
    table.number("Step p50", rows, |row| row.measured.map(|it| units::column_time(it.median)));
    table.number("p25", rows, |row| row.measured.map(|it| units::column_time(it.lower_quartile))).droppable(1);
    table.number("p75", rows, |row| row.measured.map(|it| units::column_time(it.upper_quartile))).droppable(2);
    let throughput = if items_known { "Items/s" } else { "Steps/s" };
    table.number(throughput, rows, |row| row.throughput.map(units::rate));
    table.number("Gain", rows, |row| row.gain.map(|gain| format!("{gain:+.1}%"))).droppable(8);
    table.number("GPU busy", rows, |row| row.measured.and_then(|it| it.gpu_busy).map(units::percent)).droppable(7);
    table.number("MFU", rows, |row| row.measured.and_then(|it| it.mfu).map(units::percent)).droppable(6);
    table.number("GPU memory", rows, |row| row.measured.and_then(|it| it.peak_memory).map(units::bytes)).droppable(9);
    table
        .number("Launches", rows, |row| row.measured.and_then(|it| it.launches).map(|it| format!("{it:.1}")))
        .droppable(5);
    table.text("Bottleneck", rows, |row| row.measured.and_then(|it| it.bottleneck).map(str::to_owned)).droppable(4);
    let problems = table.text("", rows, |row| match row.problem {
        Some(problem) => Some(problem.to_owned()),
        None => row.is_best.then(|| "best".to_owned()),
    });
    problems.keep_start();
    table
}
