//! GPU work as tasks, and what each of them waits for before it begins.

use super::{host::Item, latency::Latencies, signed};
use crate::trace::{Detail, Timestamp, Trace, WorkId};
use std::collections::HashMap;

/// A piece of GPU work in a simulation.
#[derive(Clone, Debug)]
pub(in crate::analysis) struct Task {
    pub(in crate::analysis) work: WorkId,
    pub(in crate::analysis) kind: TaskKind,
    pub(in crate::analysis) start: Timestamp,
    pub(in crate::analysis) end: Timestamp,
    /// When the host asked for it; its start if that is not known.
    pub(in crate::analysis) asked: Timestamp,
    /// The item of the call that asked for it.
    pub(in crate::analysis) item: Option<usize>,
    /// The task before it in its stream.
    pub(super) previous: Option<Previous>,
    /// The task of another stream that it seems to wait for.
    pub(super) dependency: Option<Previous>,
    /// The least nanoseconds from its call to its start, and the typical ones.
    launch: (i64, i64),
    /// The nanoseconds by which it began later than all that is known explains.
    pub(super) rest: i64,
    /// Whether it was asked for in the steps that are looked at.
    pub(super) measured: bool,
}

/// The kinds of tasks, which begin with different latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::analysis) enum TaskKind {
    Kernel,
    Copy,
    Fill,
    /// Work of a graph: many pieces by one call.
    Graph,
}

/// A task that another follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Previous {
    pub(super) task: usize,
    /// The nanoseconds from its end to the start of the one that follows, at the least, and typically.
    gap: (i64, i64),
}

impl Previous {
    pub(super) fn gap(self, typical: bool) -> i64 {
        if typical { self.gap.1 } else { self.gap.0 }
    }
}

impl Task {
    /// The end of a task of another stream counts as the reason for a start that follows within this time.
    const DEPENDENCY: i64 = 20_000;
    /// A start that is later than explained by less than this time needs no other explanation.
    const EXPLAINED: i64 = 3_000;
    /// The overlap up to which a task still follows the one before it in its stream.
    const OVERLAP: i64 = 5_000;
    /// The number of tasks that are looked back at in the same stream.
    const BACK: usize = 32;

    pub(super) fn launch(&self, typical: bool) -> i64 {
        if typical { self.launch.1 } else { self.launch.0 }
    }

    /// The moment at which all that its start depends on is known.
    pub(super) fn known(&self) -> Timestamp {
        self.start.max(self.asked)
    }
}

/// Returns the work of a trace in the order in which it began.
pub(super) fn of(trace: &Trace, item_of_call: &[Option<usize>]) -> Vec<Task> {
    let task = |work: crate::trace::Work<'_>| {
        let call = work.call();
        Task {
            work: work.id(),
            kind: match work.detail() {
                _ if work.graph().is_some() => TaskKind::Graph,
                Detail::Copy(_) => TaskKind::Copy,
                Detail::Fill(_) => TaskKind::Fill,
                Detail::Kernel(_) => TaskKind::Kernel,
            },
            start: work.start(),
            end: work.end(),
            asked: call.map_or(work.start(), |call| call.start()),
            item: call.and_then(|call| item_of_call[call.id().index()]),
            previous: None,
            dependency: None,
            launch: (0, 0),
            rest: 0,
            measured: false,
        }
    };
    let mut tasks: Vec<_> = trace.work().map(task).collect();
    tasks.sort_by_key(|task| (task.known(), task.end));
    let mut streams: HashMap<_, Vec<usize>> = HashMap::new();
    for index in 0..tasks.len() {
        let stream = trace.work_of(tasks[index].work).stream();
        let earlier = streams.entry((stream.device(), stream.context(), stream.number())).or_default();
        let gap = |&other: &usize| signed(tasks[other].end, tasks[index].start);
        let follows = earlier.iter().rev().take(Task::BACK).find(|other| gap(other) >= -Task::OVERLAP).copied();
        let previous = follows.map(|task| Previous { task, gap: (gap(&task), gap(&task)) });
        tasks[index].previous = previous;
        earlier.push(index);
    }
    tasks
}

/// Finds out which latencies are the tasks' own, and what the rest of the time before a task was for.
pub(super) fn relate(tasks: &mut [Task], items: &[Item], latencies: &Latencies) {
    let mut by_end: Vec<usize> = (0..tasks.len()).collect();
    by_end.sort_by_key(|&task| tasks[task].end);
    for index in 0..tasks.len() {
        let task = &tasks[index];
        let delay = task.item.map(|item| signed(items[item].start, task.start).max(0));
        let launch = latencies.launch(task.kind);
        let launch = (delay.unwrap_or(0).min(launch.0), launch.1);
        let gap = latencies.gap(task.kind);
        let previous = task.previous.map(|previous| Previous { gap: (previous.gap.0.min(gap.0), gap.1), ..previous });
        // The time by which it began later than its call and its stream explain.
        let late = |delay: Option<i64>, previous: Option<Previous>| {
            let since_call = delay.map(|delay| delay - launch.0);
            let since_previous = previous.map(|previous| signed(tasks[previous.task].end, task.start) - previous.gap.0);
            since_call.into_iter().chain(since_previous).min().unwrap_or(0).max(0)
        };
        let mut rest = late(delay, previous);
        let mut dependency = None;
        if rest > Task::EXPLAINED {
            let past = by_end.partition_point(|&other| tasks[other].end <= task.start);
            let last = by_end[..past].last().copied().filter(|&other| {
                other != index
                    && tasks[other].known() < task.known()
                    && previous.is_none_or(|previous| previous.task != other)
                    && signed(tasks[other].end, task.start) <= Task::DEPENDENCY
            });
            dependency = last.map(|other| {
                let since = signed(tasks[other].end, task.start);
                Previous { task: other, gap: (since, since) }
            });
            rest = if dependency.is_some() { 0 } else { rest };
        }
        let task = &mut tasks[index];
        (task.launch, task.previous, task.dependency, task.rest) = (launch, previous, dependency, rest);
    }
}
