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
mod kernels;
mod launches;
mod loops;
mod outliers;
mod repeated;
mod savings;
mod uploads;
mod window;
mod words;

use self::window::{Alternative, Candidate, Window};
use super::{
    collectives::exposed_collective,
    counter_use::CounterUse,
    finding::{Finding, Remedy},
    machine::machine_findings,
    simulation::Simulation,
};
use std::time::Duration;

/// A finding saves at least this part of a step.
const LEAST_SHARE: f64 = 0.01;

type Rule = fn(&Window<'_>) -> Vec<Candidate>;

/// The rules for windows with GPU activity.
const GPU_RULES: &[Rule] = &[
    outliers::outlier_steps,
    host_waits::input_bound,
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
    host_waits::input_bound,
    host_waits::host_wait,
    idle_threads::idle_threads,
    repeated::repeated_calls,
];

/// Returns what makes the steps of a window slow: see [`Analysis::findings`](super::Analysis::findings).
pub(super) fn findings<'a>(simulation: Simulation<'a>, counters: &'a [CounterUse]) -> Vec<Finding> {
    let Some(window) = Window::of(simulation, counters) else { return Vec::new() };
    let rules = if window.simulation.is_host_only() { HOST_RULES } else { GPU_RULES };
    let mut found: Vec<Finding> =
        rules.iter().flat_map(|rule| rule(&window)).filter_map(|candidate| judge(&window, candidate)).collect();
    found.extend(exposed_collective(window.trace()));
    found.extend(machine_findings(window.trace()));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.rank()));
    found
}

/// Runs the window as the candidate would have it, and returns the finding if that saves enough.
fn judge(window: &Window<'_>, candidate: Candidate) -> Option<Finding> {
    let (step, saving) = savings::saving(window, &candidate);
    if saving.likely.as_secs_f64() < LEAST_SHARE * step.as_secs_f64() {
        return None;
    }
    let place = words::Place::of(window.trace(), candidate.span);
    let measured = words::counters(window, candidate.span).filter(|_| candidate.kind.is_about_kernels());
    let change = candidate.kind.advice(window.framework).to_owned();
    let mut remedies = vec![Remedy { change, saving }];
    let mut candidate = candidate;
    for Alternative { change, costs, least, most } in std::mem::take(&mut candidate.others) {
        candidate = Candidate { costs, least, most, ..candidate };
        remedies.push(Remedy { change, saving: savings::saving(window, &candidate).1 });
    }
    Some(Finding {
        kind: candidate.kind,
        title: candidate.title,
        path: place.path,
        location: place.location,
        evidence: candidate.evidence.into_iter().chain(measured).collect(),
        ranges: window::longest(candidate.ranges),
        remedies,
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: window.count() as u64,
    })
}

#[cfg(test)]
mod tests;
