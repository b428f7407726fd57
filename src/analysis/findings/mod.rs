//! Finds what makes steps slow, and what a change would save.
//!
//! Each rule looks for one kind of problem in a [`Window`]. If it finds one, it says which parts of the window would
//! take less time without it; running the window again with that gives the saving. A rule that cannot know says
//! nothing.

mod allocations;
mod chains;
mod copies;
mod framework;
mod grids;
mod host_waits;
mod host_work;
mod idle_threads;
mod input;
mod launches;
mod loops;
mod outliers;
mod place;
mod reads;
mod repeated;
mod repeated_calls;
mod syncs;
mod tensor_cores;
mod typical;
mod uploads;
mod window;
mod words;

use self::window::{Alternative, Candidate, Window};
use super::{
    collectives::exposed_collective,
    finding::{Finding, FindingKind, Remedy, Saving},
    simulation::{self, Costs, Simulation},
};
use crate::trace::Framework;
use std::time::Duration;

/// A finding saves at least this part of a step.
const LEAST_SHARE: f64 = 0.01;

type Rule = fn(&Window<'_>) -> Vec<Candidate>;

/// The rules for windows with GPU activity.
const GPU_RULES: &[Rule] = &[
    outliers::outlier_steps,
    input::input_bound,
    syncs::host_sync,
    copies::large_readback,
    uploads::same_bytes_again,
    copies::pageable_copy,
    copies::tiny_copies,
    copies::exposed_copy,
    allocations::blocking_allocation,
    allocations::kernel_loading,
    launches::tensor_by_tensor,
    launches::launch_bound,
    host_work::host_work,
    grids::small_grid,
    tensor_cores::no_tensor_cores,
    chains::unfused_chain,
    repeated::repeated_work,
];

/// The rules for windows without.
const HOST_RULES: &[Rule] = &[
    outliers::outlier_steps,
    input::input_bound,
    host_waits::host_wait,
    idle_threads::idle_threads,
    repeated_calls::repeated_calls,
];

/// Returns what makes the steps of a window slow: see [`Analysis::findings`](super::Analysis::findings).
pub(super) fn findings(simulation: Simulation<'_>) -> Vec<Finding> {
    let Some(window) = Window::of(simulation) else { return Vec::new() };
    let rules = if window.simulation.is_host_only() { HOST_RULES } else { GPU_RULES };
    let mut found: Vec<Finding> =
        rules.iter().flat_map(|rule| rule(&window)).filter_map(|candidate| judge(&window, candidate)).collect();
    found.extend(exposed_collective(window.trace()));
    found.sort_by_key(|finding| std::cmp::Reverse(finding.rank()));
    found
}

/// Runs the window as the candidate would have it, and returns the finding if that saves enough.
fn judge(window: &Window<'_>, candidate: Candidate) -> Option<Finding> {
    let saving_of = |candidate: &Candidate| match window.simulation.is_host_only() {
        true => typical::saving(window, candidate),
        false => mean_saving(window, candidate),
    };
    let (step, saving) = saving_of(&candidate);
    if saving.likely.as_secs_f64() < LEAST_SHARE * step.as_secs_f64() {
        return None;
    }
    let place = place::of(window.trace(), candidate.span);
    let change = candidate.kind.advice(window.framework).to_owned();
    let mut remedies = vec![Remedy { change, saving }];
    let mut candidate = candidate;
    for Alternative { change, costs, least, most } in std::mem::take(&mut candidate.others) {
        candidate = Candidate { costs, least, most, ..candidate };
        remedies.push(Remedy { change, saving: saving_of(&candidate).1 });
    }
    Some(Finding {
        kind: candidate.kind,
        title: candidate.title,
        path: place.path,
        location: place.location,
        evidence: candidate.evidence,
        ranges: window::longest(candidate.ranges),
        remedies,
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: window.count() as u64,
    })
}

/// How far a measured saving may lie outside what the simulation says, in parts of it: the program that has the change
/// differs in more than the change. Of 63 savings that were predicted before anybody had looked at the training (rounds
/// 2 to 4 in `benches/README.md`), these cover 58. Predictions are more often too low than too high.
const LESS: f64 = 0.25;
const MORE: f64 = 0.9;
/// The part of a step by which the next run of the same program differs.
const NOISE: f64 = 0.02;

/// The least and the most of its simulated time that the host may take: the cost of recording is not known exactly, and
/// that of PyTorch's profiler differs between machines, by the trainings that were looked at.
pub(super) fn host_range(simulation: &Simulation<'_>) -> (f64, f64) {
    match simulation.host {
        Some(_) => (0.85, 1.1),
        None if simulation.trace.framework() == Framework::PyTorch => (0.65, 1.1),
        None => (0.8, 1.1),
    }
}

/// Returns the mean time of a step, and what the candidate saves of it. Slow steps count only if it is about them.
fn mean_saving(window: &Window<'_>, candidate: &Candidate) -> (Duration, Saving) {
    let is_about_slow_steps = candidate.kind == FindingKind::OutlierSteps;
    let mean = |costs: &Costs, host: f64| {
        let mut costs = costs.clone();
        costs.scale_host(host);
        let times = window.simulation.step_times(&costs).into_iter().zip(&window.simulation.slow);
        simulation::mean(times.filter(|(_, slow)| is_about_slow_steps || !**slow).map(|(time, _)| time))
    };
    let before = |host: f64| match window.steps.iter().find(|(of, _)| *of == host && !is_about_slow_steps) {
        Some((_, step)) => *step,
        None => mean(&window.costs(), host),
    };
    let saving = |costs: &Costs, host: f64| before(host).saturating_sub(mean(costs, host));
    let (step, likely) = (before(1.0), saving(&candidate.costs, 1.0));
    let (fast, slow) = host_range(&window.simulation);
    let mut bounds = vec![likely, saving(&candidate.costs, fast), saving(&candidate.costs, slow)];
    bounds.extend(candidate.least.iter().chain(&candidate.most).map(|costs| saving(costs, 1.0)));
    bounds.sort_unstable();
    let noise = step.mul_f64(NOISE + window.error);
    let least = bounds[0].mul_f64(1.0 - LESS).saturating_sub(noise);
    let most = bounds[bounds.len() - 1].mul_f64(1.0 + MORE).saturating_add(noise).min(step);
    (step, Saving::new(least, likely, most.max(likely)))
}

#[cfg(test)]
mod tests;
