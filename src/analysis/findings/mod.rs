//! Finds what makes steps slow, and what a change would save.
//!
//! Each rule looks for one kind of problem in a [`Window`]. If it finds one, it says which parts of the window would
//! take less time without it; running the window again with that gives the saving. A rule that cannot know says
//! nothing.

mod allocations;
mod copies;
mod grids;
mod host_waits;
mod host_work;
mod idle_threads;
mod input;
mod launches;
mod outliers;
mod place;
mod repeated;
mod repeated_calls;
mod syncs;
mod tensor_cores;
mod typical;
mod window;
mod words;

use self::window::{Candidate, Window};
use super::finding::{Finding, Remedy, Saving};
use crate::trace::Trace;
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
    copies::pageable_copy,
    copies::tiny_copies,
    copies::exposed_copy,
    allocations::blocking_allocation,
    allocations::kernel_loading,
    launches::launch_bound,
    host_work::host_work,
    grids::small_grid,
    tensor_cores::no_tensor_cores,
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

/// Returns what makes the steps of a window slow, by the time that a change would save, the most first.
///
/// The saving comes from running the recorded steps again without the cause, with all that depends on what: what the
/// host waits for, what each stream waits for, and which calls made which work. If the GPU is busy meanwhile, host work
/// that is left out saves nothing, and the result says so. Findings overlap: two of them may save less together than
/// their sum.
///
/// It takes whole steps: the list is empty without. If no GPU activity was recorded, the rules about the host look at
/// the spans of the steps' thread. Of a window with very many kernels or spans, only the first steps are looked at.
/// Causes that save less than one percent are left out.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for finding in kernspan::analysis::findings(trace) {
///     println!("{}: {} (saves {:?} of {:?})", finding.kind, finding.title, finding.saving.likely, finding.step);
/// }
/// # }
/// ```
#[must_use]
pub fn findings(trace: &Trace) -> Vec<Finding> {
    let Some(window) = Window::of(trace) else { return Vec::new() };
    let rules = if window.simulation.is_host_only() { HOST_RULES } else { GPU_RULES };
    let mut found: Vec<Finding> =
        rules.iter().flat_map(|rule| rule(&window)).filter_map(|candidate| judge(&window, candidate)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.saving.likely));
    found
}

/// Runs the window as the candidate would have it, and returns the finding if that saves enough.
fn judge(window: &Window<'_>, candidate: Candidate) -> Option<Finding> {
    let (step, saving) = if window.simulation.is_host_only() {
        typical::saving(window, &candidate)
    } else {
        mean_saving(window, &candidate)
    };
    if saving.likely.as_secs_f64() < LEAST_SHARE * step.as_secs_f64() {
        return None;
    }
    let place = place::of(window.trace(), candidate.span);
    Some(Finding {
        kind: candidate.kind,
        title: candidate.title,
        path: place.path,
        location: place.location,
        evidence: candidate.evidence,
        ranges: window::longest(candidate.ranges),
        remedies: vec![Remedy { change: candidate.kind.advice(window.trace().framework()).to_owned(), saving }],
        saving,
        step: step.max(Duration::from_nanos(1)),
        steps: window.count() as u64,
    })
}

/// Returns the mean time of a step, and what the candidate saves of it.
fn mean_saving(window: &Window<'_>, candidate: &Candidate) -> (Duration, Saving) {
    let step = window.unchanged.step();
    let saving = |costs| step.saturating_sub(window.simulation.run(costs).step());
    let likely = saving(&candidate.costs);
    // The error of the simulation itself is part of the bounds.
    let error = step.mul_f64(window.error);
    let least = candidate.least.as_ref().map_or(likely, saving).saturating_sub(error);
    let most = candidate.most.as_ref().map_or(likely, saving).saturating_add(error).min(step);
    (step, Saving::new(least.min(likely), likely, most.max(likely)))
}

#[cfg(test)]
mod tests;
