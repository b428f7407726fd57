//! Finds what makes steps slow, and what a change would save.
//!
//! Each rule looks for one kind of problem in a [`Window`]. If it finds one, it says which parts of the window would
//! take less time without it; running the window again with that gives the saving. A rule that cannot know says
//! nothing.

mod blocking_calls;
mod chains;
mod clocks;
mod copies;
mod host_waits;
mod idle_threads;
mod input;
mod kernels;
mod launches;
mod loops;
mod off_cpu;
mod outliers;
mod questions;
mod repeated;
mod savings;
mod uploads;
mod waits_for;
mod window;
mod words;

use self::window::{Alternative, Candidate, Window};
use super::{
    collectives::exposed_collective,
    counter_use::CounterUse,
    finding::{Finding, Remedy},
    machine::machine_findings,
    open_question::OpenQuestion,
    simulation::Simulation,
};
use std::time::Duration;

type Rule = fn(&Window<'_>) -> Vec<Candidate>;

/// The rules for windows with GPU activity.
const GPU_RULES: &[Rule] = &[
    outliers::outlier_steps,
    input::input_bound,
    blocking_calls::host_sync,
    copies::large_readback,
    uploads::same_bytes_again,
    copies::pageable_copy,
    copies::tiny_copies,
    copies::exposed_copy,
    blocking_calls::blocking_allocation,
    blocking_calls::kernel_loading,
    launches::tensor_by_tensor,
    launches::launch_bound,
    launches::host_work,
    kernels::small_grid,
    kernels::no_tensor_cores,
    clocks::low_clock,
    chains::unfused_chain,
    repeated::repeated_work,
];

/// The rules for windows without.
const HOST_RULES: &[Rule] = &[
    outliers::outlier_steps,
    input::input_bound,
    host_waits::host_wait,
    idle_threads::idle_threads,
    repeated::repeated_calls,
];

/// What rules say of a window.
#[derive(Debug, Default)]
pub(crate) struct WindowFindings {
    /// What makes its steps slow, the most first.
    pub(crate) findings: Vec<Finding>,
    /// What saves too little here to be reported, but may be more in other windows of the run.
    pub(crate) minor: Vec<Finding>,
    /// What takes a notable part of its steps without a finding.
    pub(crate) questions: Vec<OpenQuestion>,
}

/// Returns what makes the steps of a window slow: see [`Analysis::findings`](super::Analysis::findings). All findings
/// are about `step`, the time of a typical step.
pub(super) fn findings<'a>(simulation: Simulation<'a>, counters: &'a [CounterUse], step: Duration) -> WindowFindings {
    let Some(window) = Window::of(simulation, counters) else { return WindowFindings::default() };
    let rules = if window.simulation.is_host_only() { HOST_RULES } else { GPU_RULES };
    let judged = rules.iter().flat_map(|rule| rule(&window)).map(|candidate| judge(&window, candidate));
    let (mut found, minor): (Vec<Finding>, Vec<Finding>) = judged.partition(Finding::is_notable);
    found.extend(exposed_collective(window.trace()));
    found.extend(machine_findings(window.trace()));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.rank()));
    for finding in &mut found {
        finding.step = step.max(Duration::from_nanos(1));
        if !finding.kind.is_about_slow_steps() {
            finding.saving = finding.saving.within(finding.step);
            finding.remedies.iter_mut().for_each(|remedy| remedy.saving = remedy.saving.within(finding.step));
        }
    }
    WindowFindings { findings: found, minor, questions: questions::open_questions(&window) }
}

/// Runs the window as the candidate would have it, and returns what that saves.
fn judge(window: &Window<'_>, mut candidate: Candidate) -> Finding {
    let (step, saving) = savings::saving(window, &candidate);
    let place = words::Place::of(window.trace(), candidate.span);
    let measured = words::counters(window, candidate.span).filter(|_| candidate.kind.is_about_kernels());
    let change = candidate.change.unwrap_or_else(|| candidate.kind.advice(window.framework)).to_owned();
    let mut finding = Finding {
        kind: candidate.kind,
        title: std::mem::take(&mut candidate.title),
        path: place.path,
        location: place.location,
        evidence: std::mem::take(&mut candidate.evidence).into_iter().chain(measured).collect(),
        ranges: window::longest(std::mem::take(&mut candidate.ranges)),
        remedies: vec![Remedy { change, saving }],
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: window.count() as u64,
        each: candidate.each.map(Duration::from_nanos),
    };
    if finding.is_notable() {
        for Alternative { change, costs, least, most } in std::mem::take(&mut candidate.others) {
            candidate = Candidate { costs, least, most, ..candidate };
            finding.remedies.push(Remedy { change, saving: savings::saving(window, &candidate).1 });
        }
    }
    finding
}

#[cfg(test)]
mod tests;
