//! What a change would save of a step, and how far that may be off.

use super::{
    super::{
        finding::{FindingKind, Saving},
        quantile::lower_median,
        simulation::{self, Costs},
    },
    window::{Candidate, Window, host_range, total},
};
use std::time::Duration;

/// How far a measured saving may lie outside what the simulation says, in parts of it: the program that has the change
/// differs in more than the change. Of 63 savings that were predicted before anybody had looked at the training (rounds
/// 2 to 4 in `benches/README.md`), these cover 58. Predictions are more often too low than too high.
const LESS: f64 = 0.25;
const MORE: f64 = 0.9;
/// The part of a step by which the next run of the same program differs.
const NOISE: f64 = 0.02;

/// The share of regular steps that save less than the least, and of those that save more than the most.
const TAIL: f64 = 0.1;
/// The least uncertainty of a saving, as a part of the step: however alike the recorded steps are, the next run of the
/// same program differs by about this much.
const ERROR: f64 = 0.02;

/// Returns the time of a step, and what the candidate saves of it.
pub(super) fn saving(window: &Window<'_>, candidate: &Candidate) -> (Duration, Saving) {
    match window.simulation.is_host_only() {
        true => typical_saving(window, candidate),
        false => mean_saving(window, candidate),
    }
}

/// Returns the mean time of a step, and what the candidate saves of it. Slow steps count only if it is about them.
///
/// The most is no more than the time of the [`cause`]: a change of products leaves the time of other kernels.
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
    let most = bounds[bounds.len() - 1]
        .mul_f64(1.0 + MORE)
        .min(cause(window, candidate).unwrap_or(step))
        .saturating_add(noise);
    (step, Saving::new(least, likely, most).within(step))
}

/// Returns the time of a step that all parts take that the candidate changes, as it was recorded and with what they
/// wait for; `None` if it makes the whole host faster, or all latencies shorter.
///
/// How long kernels take is certain. What the host takes without a profiler is less so, by as much as a saving is.
fn cause(window: &Window<'_>, candidate: &Candidate) -> Option<Duration> {
    let (own, changes) = (window.costs(), candidate.all_costs());
    if changes.iter().any(|change| !own.has_same_speed(change)) {
        return None;
    }
    let (items, tasks) = own.changed(&changes);
    let simulation = &window.simulation;
    let of_gpu = total(tasks.iter().map(|&task| simulation.tasks[task].nanos()));
    let of_host = total(items.iter().map(|&item| simulation.items[item].nanos())) as f64 * (1.0 + LESS);
    Some(Duration::from_nanos(window.per_step(of_gpu.saturating_add(of_host as u64))))
}

/// The same without GPU activity, where each step has a time of its own.
///
/// Slow steps, such as the first ones or those that write a checkpoint, are not typical: they are left out, and the
/// saving is the median of the others. Only a finding about slow steps is about the mean.
fn typical_saving(window: &Window<'_>, candidate: &Candidate) -> (Duration, Saving) {
    let before = window.simulation.step_times(&window.costs());
    let is_about_slow_steps = candidate.kind == FindingKind::OutlierSteps;
    let steps = window.trace().steps();
    let counts: Vec<bool> = window
        .simulation
        .steps
        .iter()
        .map(|id| if is_about_slow_steps { steps[id.index()].number() > 0 } else { !window.slow.contains(id) })
        .collect();
    let of_counted = |times: &[Duration]| -> Vec<Duration> {
        times.iter().zip(&counts).filter(|(_, counts)| **counts).map(|(time, _)| *time).collect()
    };
    let savings = |costs: &Costs| -> Vec<Duration> {
        let after = window.simulation.step_times(costs);
        let saved: Vec<_> = before.iter().zip(&after).map(|(before, after)| before.saturating_sub(*after)).collect();
        of_counted(&saved)
    };
    let likely = savings(&candidate.costs);
    if is_about_slow_steps {
        let (step, (likely, error)) = (mean_and_error(&of_counted(&before)).0, mean_and_error(&likely));
        return (step, bounds(step, likely.saturating_sub(error), likely, likely + error));
    }
    let step = lower_median(of_counted(&before)).unwrap_or_default();
    let least = quantile(candidate.least.as_ref().map_or_else(|| likely.clone(), savings), TAIL);
    let most = quantile(candidate.most.as_ref().map_or_else(|| likely.clone(), savings), 1.0 - TAIL);
    let likely = match candidate.is_mean {
        true => mean_and_error(&likely).0,
        false => lower_median(likely).unwrap_or_default(),
    };
    (step, bounds(step, least, likely, most))
}

/// Returns a saving of which the bounds are never equal.
fn bounds(step: Duration, least: Duration, likely: Duration, most: Duration) -> Saving {
    let error = step.mul_f64(ERROR);
    let least = least.min(likely).saturating_sub(error);
    Saving::new(least, likely, most.max(likely).saturating_add(error)).within(step)
}

/// Returns the mean and its standard error.
fn mean_and_error(times: &[Duration]) -> (Duration, Duration) {
    let count = times.len().max(1) as f64;
    let mean = times.iter().map(Duration::as_secs_f64).sum::<f64>() / count;
    let variance = times.iter().map(|time| (time.as_secs_f64() - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    (Duration::from_secs_f64(mean), Duration::from_secs_f64((variance / count).sqrt()))
}

/// Returns the time that this share of times does not exceed.
fn quantile(mut times: Vec<Duration>, share: f64) -> Duration {
    times.sort_unstable();
    let rank = (times.len().saturating_sub(1) as f64 * share).round() as usize;
    times.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{bounds, mean_and_error, quantile};
    use std::time::Duration;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn bounds_are_never_equal() {
        let saving = bounds(100 * MILLI, 50 * MILLI, 50 * MILLI, 50 * MILLI);
        assert_eq!((saving.least, saving.likely, saving.most), (48 * MILLI, 50 * MILLI, 52 * MILLI));
        // No more than the step can be saved, and no less than nothing.
        assert_eq!(bounds(100 * MILLI, MILLI, 99 * MILLI, 99 * MILLI).most, 100 * MILLI);
        assert_eq!(bounds(100 * MILLI, MILLI, 99 * MILLI, 99 * MILLI).least, Duration::ZERO);
    }

    #[test]
    fn steps_that_differ_make_bounds_wide() {
        let times: Vec<_> = (0..=10).map(|step| step * MILLI).collect();
        assert_eq!((quantile(times.clone(), 0.1), quantile(times, 0.9)), (MILLI, 9 * MILLI));
        assert_eq!(quantile(Vec::new(), 0.5), Duration::ZERO);
        let (mean, error) = mean_and_error(&[Duration::ZERO, 4 * MILLI]);
        assert_eq!((mean, error), (2 * MILLI, 2 * MILLI));
        assert_eq!(mean_and_error(&[]), (Duration::ZERO, Duration::ZERO));
    }
}
