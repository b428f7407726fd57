//! The printed row of the table: step times by phase, and the results of the checks.

use crate::{check::Checked, plan::Plan};
use kernspan::Activity;
use std::time::Duration;

/// Step times in microseconds, by phase.
pub(crate) struct Phases {
    plan: Plan,
    before: Vec<f64>,
    wait: Vec<f64>,
    warmup: Vec<f64>,
    active: Vec<f64>,
    after: Vec<f64>,
}

impl Phases {
    pub(crate) fn new(plan: &Plan) -> Self {
        let (plan, none) = (plan.clone(), Vec::new);
        Self { plan, before: none(), wait: none(), warmup: none(), active: none(), after: none() }
    }

    /// Adds the time of a step, including `Profiler::step`.
    pub(crate) fn add(&mut self, number: u64, time: Duration) {
        let (plan, micros) = (&self.plan, time.as_secs_f64() * 1e6);
        let in_cycles = number.saturating_sub(plan.before);
        let in_cycle = in_cycles % plan.cycle();
        let times = match number {
            // The first steps are slower. The first wait counts as before, because CUPTI has not been attached yet.
            _ if number < plan.before / 3 => return,
            _ if number < plan.before + plan.wait => &mut self.before,
            _ if in_cycles >= plan.windows * plan.cycle() => &mut self.after,
            _ if in_cycle < plan.wait => &mut self.wait,
            _ if in_cycle < plan.wait + plan.warmup => &mut self.warmup,
            _ => &mut self.active,
        };
        times.push(micros);
    }
}

/// A row of the table.
pub(crate) struct Row<'a> {
    pub(crate) name: &'a str,
    pub(crate) plan: &'a Plan,
    pub(crate) per_step: u64,
    pub(crate) checked: &'a Checked,
    pub(crate) unattributed: u64,
    pub(crate) lost: u64,
    /// Used RAM and free GPU memory after each quarter of the steps.
    pub(crate) memory: Vec<(usize, Option<usize>)>,
}

impl Row<'_> {
    /// Formats a row of the Markdown table whose head is in `benches/soak.sh`.
    pub(crate) fn format(&self, phases: &Phases) -> String {
        let Self { name, plan, per_step, checked, unattributed, lost, .. } = self;
        let before = median(&phases.before);
        let times = |times: &[f64]| match times {
            [] => "–".to_owned(),
            _ => format!("{:.3} ({:.3})", median(times) / before, mean(times) / before),
        };
        let records = plan.activities.iter().filter_map(|activity| match activity {
            Activity::Memory => Some(" memory"),
            Activity::Sync => Some(" sync"),
            Activity::ApiCalls => Some(" calls"),
            _ => None,
        });
        let grew = |first: usize, last: usize| format!("{:+.1}", (last as f64 - first as f64) / 1e6);
        // Growth counts from the second quarter on, because the first windows allocate.
        let second_and_last = self.memory.get(1).zip(self.memory.last());
        let ram = second_and_last.map_or_else(String::new, |(second, last)| grew(second.0, last.0));
        let gpu = second_and_last.and_then(|(second, last)| Some(grew(last.1?, second.1?))).unwrap_or_default();
        let cells = [
            format!("{name}{}", records.collect::<String>()),
            plan.threads.to_string(),
            plan.wait.to_string(),
            format!("{}, {per_step} a step", checked.windows),
            checked.wrong.len().to_string(),
            unattributed.to_string(),
            lost.to_string(),
            format!("{before:.0}"),
            times(&phases.wait),
            times(&phases.warmup),
            times(&phases.active),
            times(&phases.after),
            ram,
            gpu,
        ];
        format!("| {} |", cells.join(" | "))
    }
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}
