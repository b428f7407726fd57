//! The time that it takes to begin work: after its call, and after the work before it.

use super::{
    item::Item,
    nanos, signed,
    task::{Task, TaskKind},
};
use std::collections::HashMap;

/// The least and the typical latencies of a window, in nanoseconds, by the kind of the task that begins.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// From a call to the start of its task, if the stream was idle.
    launches: HashMap<TaskKind, (i64, i64)>,
    /// From the end of a task to the start of the next, if that had been asked for before.
    gaps: HashMap<TaskKind, (i64, i64)>,
}

impl Latencies {
    /// The latencies of a launch and of a gap if none was recorded that shows them.
    const LAUNCH: (i64, i64) = (3_000, 6_000);
    const GAP: (i64, i64) = (900, 1_200);
    /// A launch that takes longer than this shows no latency.
    const LONGEST: i64 = 50_000;
    /// The least latency is greater than this part of all, so that a few odd ones do not count.
    const LEAST: f64 = 0.1;

    pub(super) fn of(tasks: &[Task], items: &[Item]) -> Self {
        let mut launches: HashMap<TaskKind, Vec<i64>> = HashMap::new();
        let mut gaps: HashMap<TaskKind, Vec<i64>> = HashMap::new();
        for task in tasks {
            let Some(item) = task.item.map(|item| &items[item]) else { continue };
            let previous = task.previous.map(|previous| tasks[previous.task].end);
            let was_idle = previous.is_none_or(|end| end <= item.start);
            // If it took longer, the call did something else first, or the GPU was busy with work that is not known.
            let delay = nanos(item.start, task.start) as i64;
            if was_idle && delay < Self::LONGEST && task.kind != TaskKind::Graph {
                launches.entry(task.kind).or_default().push(delay);
            }
            let was_queued = previous.filter(|&end| nanos(item.start, end) > 20_000);
            if let Some(end) = was_queued.filter(|&end| signed(end, task.start) < Self::longest_gap(task.kind)) {
                gaps.entry(task.kind).or_default().push(signed(end, task.start));
            }
        }
        let least_and_median = |(kind, mut latencies): (TaskKind, Vec<i64>)| {
            latencies.sort_unstable();
            let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize];
            (kind, (at(Self::LEAST), at(0.5)))
        };
        Self {
            launches: launches.into_iter().map(least_and_median).collect(),
            gaps: gaps.into_iter().map(least_and_median).collect(),
        }
    }

    /// A gap that is longer than this was not only to begin the next task.
    fn longest_gap(kind: TaskKind) -> i64 {
        if kind == TaskKind::GraphStart { 500_000 } else { 10_000 }
    }

    pub(super) fn launch(&self, kind: TaskKind) -> (i64, i64) {
        let known = self.launches.get(&kind).or_else(|| self.launches.get(&TaskKind::Kernel));
        known.copied().unwrap_or(Self::LAUNCH)
    }

    pub(super) fn gap(&self, kind: TaskKind) -> (i64, i64) {
        let known = self.gaps.get(&kind).or_else(|| self.gaps.get(&TaskKind::Kernel));
        known.copied().unwrap_or(Self::GAP)
    }
}
