//! GPU work as tasks, and what each of them waits for before it begins.

use super::{
    item::Item,
    latency::Latencies,
    signed,
    task::{Previous, Reason, Task, TaskKind},
};
use crate::trace::{ApiCall, Detail, Timestamp, Trace, Work};
use std::collections::{HashMap, HashSet};

/// The end of a task of another stream counts as the reason for a start that follows within this time.
const DEPENDENCY: i64 = 20_000;
/// A start that is later than explained by less than this time needs no other explanation.
const EXPLAINED: i64 = 3_000;
/// The overlap up to which a task still follows the one before it in its stream.
const OVERLAP: i64 = 5_000;
/// The first task of a stream that begins later than this after its call waited for others.
const BACKLOG: i64 = 50_000;
/// The number of tasks that are looked back at in the same stream.
const BACK: usize = 32;

/// Returns the work of a trace that was asked for up to a moment, in the order in which it began.
pub(super) fn of(trace: &Trace, until: Timestamp, item_of_call: &[Option<usize>]) -> Vec<Task> {
    // Work without a call, in a trace that has calls, was asked for before the window: the host had run ahead.
    let has_calls = trace.api_calls().len() > 0;
    let task = |work: Work<'_>| {
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
            asked: call.map_or_else(|| if has_calls { trace.start() } else { work.start() }, ApiCall::start),
            item: call.and_then(|call| item_of_call[call.id().index()]),
            previous: None,
            dependency: None,
            launch: (0, 0),
            waited_before: None,
            reason: Reason::Call,
            measured: false,
        }
    };
    let mut tasks: Vec<_> = trace.work().map(task).filter(|task| task.asked < until).collect();
    tasks.sort_by_key(|task| (task.known(), task.end));
    let mut graphs = HashSet::new();
    for task in tasks.iter_mut().filter(|task| task.kind == TaskKind::Graph) {
        if task.item.is_some_and(|item| graphs.insert(item)) {
            task.kind = TaskKind::GraphStart;
        }
    }
    let mut streams: HashMap<_, Vec<usize>> = HashMap::new();
    for index in 0..tasks.len() {
        let stream = trace.work_of(tasks[index].work).stream();
        let earlier = streams.entry((stream.device(), stream.context(), stream.number())).or_default();
        let gap = |&other: &usize| signed(tasks[other].end, tasks[index].start);
        let follows = earlier.iter().rev().take(BACK).find(|other| gap(other) >= -OVERLAP).copied();
        let previous = follows.map(|task| Previous { task, gap: (gap(&task), gap(&task)) });
        tasks[index].previous = previous;
        earlier.push(index);
    }
    tasks
}

/// Finds out what each task waited for last, which has the latency that was recorded; other reasons have the least.
pub(super) fn relate(tasks: &mut [Task], items: &[Item], latencies: &Latencies) {
    let mut by_end: Vec<usize> = (0..tasks.len()).collect();
    by_end.sort_by_key(|&task| tasks[task].end);
    for index in 0..tasks.len() {
        let task = &tasks[index];
        let delay = task.item.map(|item| signed(items[item].start, task.start).max(0));
        let since = task.previous.map(|previous| signed(tasks[previous.task].end, task.start));
        let (least_launch, typical_launch) = latencies.launch(task.kind);
        let (least_gap, typical_gap) = latencies.gap(task.kind);
        // The time by which it began later than its call, and than its stream, explain.
        let after_call = delay.map(|delay| delay - least_launch);
        let after_previous = since.map(|since| since - least_gap);
        let late = after_call.into_iter().chain(after_previous).min().unwrap_or(0);
        let dependency = (late > EXPLAINED).then(|| dependency(tasks, &by_end, index)).flatten();
        let is_last = |after: Option<i64>| dependency.is_none() && after == Some(late);
        let launch = delay.unwrap_or(0);
        // The GPU was still busy with work from before the window.
        let behind = task.previous.is_none() && launch > BACKLOG;
        let launch = (if is_last(after_call) { launch } else { launch.min(least_launch) }, typical_launch);
        let gap = |since: i64| (if is_last(after_previous) { since } else { since.min(least_gap) }, typical_gap);
        let previous = task.previous.zip(since).map(|(previous, since)| Previous { gap: gap(since), ..previous });
        let reason = match () {
            () if dependency.is_some() => Reason::Dependency,
            () if after_previous.is_some() && is_last(after_previous) => Reason::Previous,
            () => Reason::Call,
        };
        let task = &mut tasks[index];
        task.reason = reason;
        (task.launch, task.previous, task.dependency) = (launch, previous, dependency);
        task.waited_before = behind.then_some(least_launch);
    }
}

/// Returns the task of another stream that ended just before this one began, if there is one.
fn dependency(tasks: &[Task], by_end: &[usize], index: usize) -> Option<Previous> {
    let task = &tasks[index];
    let past = by_end.partition_point(|&other| tasks[other].end <= task.start);
    let other = *by_end[..past].last()?;
    let since = signed(tasks[other].end, task.start);
    let is_other = other != index && task.previous.is_none_or(|previous| previous.task != other);
    let is_before = tasks[other].known() < task.known() && since <= DEPENDENCY;
    (is_other && is_before).then_some(Previous { task: other, gap: (since, since) })
}
