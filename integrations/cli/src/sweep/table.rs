//! The table of a sweep.

use super::{
    Compared,
    trial::{Measured, Trial},
};
use crate::{
    achieved::{Achieved, signed},
    json::json,
    output::Section,
};
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
    /// Joules per item, or per step if the items per step are unknown.
    pub(super) joules: Option<f64>,
    /// Items, or steps, per unit of the currency.
    pub(super) per_price: Option<f64>,
    pub(super) goal: Option<&'a Achieved>,
    /// Whether no other value is as good by all objectives and better by one; `None` if there is nothing to compare.
    pub(super) is_pareto: Option<bool>,
    pub(super) measured: Option<&'a Measured>,
}

/// Returns the table, with the best value and the reasons below it.
pub(super) fn section(compared: &Compared<'_>) -> Section {
    let Compared { name, trials, choice, pareto, .. } = compared;
    let rows = rows(compared);
    let best = choice.best.map(|best| best_line(name, &trials[best], trials));
    let mut notes: Vec<_> = best.iter().chain(&choice.why).cloned().collect();
    if !pareto.objectives.is_empty() {
        notes.push(format!("* no other value is as good in {} and better in one of them", pareto.names()));
    }
    if let Some(line) = goal_line(compared) {
        notes.push(format!("goal: {line}; Better is the change from the first value to the last"));
    }
    if !compared.items_known {
        notes.push("the number of items per step is unknown: set it with --items".to_owned());
    }
    notes.extend(compared.missing.iter().cloned());
    let objectives: Vec<_> = pareto.objectives.iter().map(|objective| objective.name.as_str()).collect();
    Section {
        title: format!("Sweep of {name}"),
        key: "sweep",
        table: Some(table(compared, &rows, notes)),
        rows: rows.iter().map(json).collect(),
        members: vec![
            ("variable", (*name).into()),
            ("best", choice.best.map(|best| trials[best].value.as_str()).into()),
            ("why", choice.why.clone().into()),
            ("objectives", objectives.into()),
            ("missing", compared.missing.clone().into()),
        ],
        marked: choice.best.into_iter().collect(),
        ..Section::default()
    }
}

pub(super) fn rows<'a>(compared: &'a Compared<'_>) -> Vec<TrialRow<'a>> {
    let Compared { trials, choice, pareto, .. } = compared;
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
            joules: trial.joules(),
            per_price: trial.per_price(),
            goal: trial.achieved.as_ref(),
            is_best: choice.best == Some(index),
            is_pareto: pareto.of_trial(index),
            problem: trial.result.as_ref().err().map(String::as_str),
            measured: trial.result.as_ref().ok(),
        }
    };
    trials.iter().enumerate().map(row).collect()
}

/// Describes the goal, and which run ended with the best value: `loss (lower is better), 0.0242 at LR=0.5`.
pub(super) fn goal_line(compared: &Compared<'_>) -> Option<String> {
    let goal = compared.goal.as_ref()?;
    let (counter, direction) = (&goal.counter, goal.direction());
    let ended = compared.trials.iter().filter_map(|trial| Some((trial, trial.achieved.as_ref()?.last)));
    let ended = ended.filter(|(_, last)| last.is_finite());
    let best = ended.max_by(|(_, a), (_, b)| if goal.is_higher_better { a.total_cmp(b) } else { b.total_cmp(a) });
    let best = best.map(|(trial, last)| format!(", {} at {}={}", signed(last), compared.name, trial.value));
    Some(format!("{counter} ({direction}){}", best.unwrap_or_default()))
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

fn table(compared: &Compared<'_>, rows: &[TrialRow<'_>], notes: Vec<String>) -> Table {
    let mut table = Table::default();
    table.heading(format!("{}:", compared.name));
    notes.into_iter().for_each(|note| table.note(note));
    table.number("Value", rows, |row| row.value.to_owned());
    table.number("Steps", rows, |row| row.measured.map(|it| it.steps.to_string())).droppable(3);
    table.number("Step p50", rows, |row| row.measured.map(|it| units::column_time(it.median)));
    table.number("p25", rows, |row| row.measured.map(|it| units::column_time(it.lower_quartile))).droppable(1);
    table.number("p75", rows, |row| row.measured.map(|it| units::column_time(it.upper_quartile))).droppable(2);
    let [throughput, joules, per_price] = match compared.items_known {
        true => ["Items/s", "J/item", "Items/price"],
        false => ["Steps/s", "J/step", "Steps/price"],
    };
    table.number(throughput, rows, |row| row.throughput.map(units::rate));
    table.number("Gain", rows, |row| row.gain.map(|gain| format!("{gain:+.1} %"))).droppable(8);
    table.number("GPU busy", rows, |row| row.measured.and_then(|it| it.gpu_busy).map(units::percent)).droppable(7);
    table.number("MFU", rows, |row| row.measured.and_then(|it| it.mfu).map(units::percent)).droppable(6);
    table.number("GPU memory", rows, |row| row.measured.and_then(|it| it.peak_memory).map(units::bytes)).droppable(9);
    table.number(joules, rows, |row| row.joules.map(units::rate)).droppable(11);
    table.number(per_price, rows, |row| row.per_price.map(units::rate)).droppable(10);
    table.number("Goal", rows, |row| row.goal.map(|it| signed(it.last)));
    table.number("Best goal", rows, |row| row.goal.map(|it| signed(it.best))).droppable(8);
    table.number("Better/s", rows, |row| row.goal.and_then(|it| it.per_second).map(signed)).droppable(13);
    table.number("Better/J", rows, |row| row.goal.and_then(|it| it.per_joule).map(signed)).droppable(12);
    table.number("Better/price", rows, |row| row.goal.and_then(|it| it.per_price).map(signed)).droppable(12);
    table.text("", rows, |row| row.is_pareto.filter(|&it| it).map(|_| "*".to_owned()));
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
