//! The host launches many short kernels.

use super::{
    super::{finding::FindingKind, functions::is_launch, simulation::TaskKind},
    host_work::{WORK, is_work, spans_that_call},
    place,
    window::{Candidate, Window},
    words,
};
use std::collections::HashMap;

/// The number of launches in a step from which on they are many.
const MANY: usize = 20;
/// The part of a step that is saved at least if the host need not launch.
const LEAST_SHARE: f64 = 0.05;
/// The nanoseconds that the host takes to launch a graph.
const GRAPH: u64 = 10_000;
/// The nanoseconds between two kernels of a graph.
const GRAPH_GAP: i64 = 100;

/// Finds steps that are slow because the host takes longer to launch kernels than the GPU to run them.
pub(super) fn launch_bound(window: &Window<'_>) -> Vec<Candidate> {
    let launches: Vec<_> = window.calls().filter(|(_, item, call)| is_launch(*call) && !item.waited()).collect();
    let kernels = window.tasks().filter(|(_, task, work)| task.kind == TaskKind::Kernel && work.kernel().is_some());
    let durations: Vec<u64> = kernels.map(|(_, _, work)| work.duration().as_nanos() as u64).collect();
    if launches.len() < MANY * window.count() || durations.len() < MANY * window.count() {
        return Vec::new();
    }
    let calling = spans_that_call(window);
    let mut costs = window.costs();
    let mut first_of_step = HashMap::new();
    let mut nanos = 0;
    for &(index, item, _) in &launches {
        let is_first = first_of_step.insert((item.thread, item.step), ()).is_none();
        costs.set_item(index, if is_first { GRAPH.min(item.nanos()) } else { 0 });
        nanos += item.nanos();
    }
    // The time in which the host prepares the launches goes with them.
    let threads: std::collections::HashSet<_> = launches.iter().map(|(_, item, _)| item.thread).collect();
    for (index, item) in window.items() {
        let is_between = item.call.is_none() && item.nanos() < WORK && threads.contains(&item.thread);
        if is_between && !item.waited() && !is_work(window, item, &calling) {
            costs.set_item(index, 0);
            nanos += item.nanos();
        }
    }
    // If the GPU is busy while the host launches, launches are not the problem, even if a graph would save some time.
    let faster = window.simulation.run(&costs).step();
    if faster.as_secs_f64() > (1.0 - LEAST_SHARE) * window.unchanged.step().as_secs_f64() {
        return Vec::new();
    }
    let least = costs.clone();
    costs.limit_gaps(GRAPH_GAP);
    let spans = window.groups(launches.iter().map(|&(index, item, _)| (index, item.span, item.nanos())));
    let outermost = spans.first().and_then(|group| group.span);
    let (count, all) = (launches.len(), durations.iter().sum::<u64>());
    let each = words::nanos(nanos / count as u64);
    let short = words::nanos(all / durations.len() as u64);
    let often = words::digits(count as f64 / window.count() as f64);
    vec![Candidate {
        kind: FindingKind::LaunchBound,
        title: format!("the host launches {often} kernels a step and takes {each} for each, which run for {short}"),
        span: outermost,
        evidence: vec![
            format!("Launching takes {} of a step on the host.", words::nanos(window.per_step(nanos))),
            format!("The kernels take {} of a step.", words::nanos(window.per_step(all))),
            format!("Most of it is in {}.", place::name(window.trace(), outermost)),
        ],
        ranges: window.item_ranges(&launches.iter().map(|&(index, ..)| index).collect::<Vec<_>>()),
        costs,
        least: Some(least),
        most: None,
    }]
}
