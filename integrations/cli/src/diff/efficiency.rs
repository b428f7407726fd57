//! The efficiency of both sides of a comparison, in time and energy.

use crate::achieved::{Goal, RunCounters};
use serde::Serialize;

/// A figure of both sides, as the mean over the runs of each.
#[derive(Debug, Serialize)]
pub(super) struct EfficiencyChange {
    pub(super) name: String,
    pub(super) before: f64,
    pub(super) after: f64,
}

/// Returns the figures that both sides have: of each goal, the last value and its improvement per second and
/// per joule; the joules of a step and of a sample.
pub(super) fn changes(sides: [&[RunCounters]; 2], goals: &[Goal]) -> Vec<EfficiencyChange> {
    let mut changes = Vec::new();
    let mut add = |name: String, of: &dyn Fn(&RunCounters) -> Option<f64>| {
        if let [Some(before), Some(after)] = sides.map(|runs| mean(runs, of)) {
            changes.push(EfficiencyChange { name, before, after });
        }
    };
    for goal in goals {
        let (counter, achieved) = (&goal.counter, |run: &RunCounters| run.achieved(goal, None));
        add(format!("last {counter}"), &|run| Some(achieved(run)?.last));
        add(format!("{counter}, improvement per second"), &|run| achieved(run)?.per_second);
        add(format!("{counter}, improvement per joule"), &|run| achieved(run)?.per_joule);
    }
    add("joules per step".to_owned(), &RunCounters::joules_per_step);
    add("joules per sample".to_owned(), &RunCounters::joules_per_sample);
    changes
}

/// Returns the mean over the runs; `None` if one of them does not have the figure.
fn mean(runs: &[RunCounters], of: &dyn Fn(&RunCounters) -> Option<f64>) -> Option<f64> {
    let sum: f64 = runs.iter().map(of).sum::<Option<f64>>()?;
    (!runs.is_empty()).then(|| sum / runs.len() as f64)
}
