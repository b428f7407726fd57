//! GPUs in a simulation: tasks, which are pieces of work, what each waits for, and how long it takes to begin.

use super::{host::Item, nanos, signed};
use crate::{
    analysis::sorted::SortedMap,
    trace::{ApiCall, Detail, Timestamp, Trace, Work, WorkId},
};
use rustc_hash::FxHashSet;

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
    /// Whether it was launched before the window: it has no call, and in its stream nothing before it has one.
    pub(super) earlier: bool,
    /// The task before it in its stream.
    pub(super) previous: Option<Previous>,
    /// The task of another stream that it seems to wait for.
    pub(super) dependency: Option<Previous>,
    /// The nanoseconds from its call to its start, at the least, and typically.
    pub(super) launch: (i64, i64),
    /// The least nanoseconds from its call to its start, if it waited for work from before the window.
    pub(super) waited_before: Option<i64>,
    /// The reason for which it did not begin earlier.
    pub(super) reason: Reason,
    /// Whether it was asked for in the steps that are looked at.
    pub(super) measured: bool,
}

/// The last thing that a task waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its call.
    #[default]
    Call,
    /// The task before it in its stream.
    Previous,
    /// A task of another stream.
    Dependency,
}

/// The kinds of tasks, which begin with different latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::analysis) enum TaskKind {
    Kernel,
    Copy,
    Fill,
    /// The first work of a graph.
    GraphStart,
    /// Other work of a graph.
    Graph,
}

impl TaskKind {
    /// The nanoseconds by which recording makes the time between two tasks longer. Measured with CUPTI 13.0 on an
    /// H200: see `benches/README.md`.
    pub(super) fn overhead(self) -> i64 {
        match self {
            Self::Kernel | Self::Graph => 170,
            Self::Copy | Self::Fill => 550,
            // CUPTI prepares the records of a graph before it runs.
            Self::GraphStart => 200_000,
        }
    }
}

/// A task that another follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Previous {
    pub(super) task: usize,
    /// The nanoseconds from its end to the start of the one that follows, at the least, and typically.
    pub(super) gap: (i64, i64),
}

impl Previous {
    pub(super) fn gap(self, typical: bool) -> i64 {
        if typical { self.gap.1 } else { self.gap.0 }
    }
}

impl Task {
    pub(super) fn launch(&self, typical: bool) -> i64 {
        if typical && self.waited_before.is_none() { self.launch.1 } else { self.launch.0 }
    }

    /// The time that it takes.
    pub(in crate::analysis) fn nanos(&self) -> u64 {
        nanos(self.start, self.end)
    }

    /// The moment at which all that its start depends on is known.
    pub(super) fn known(&self) -> Timestamp {
        self.start.max(self.asked)
    }
}

/// The least and the typical latencies of a window, in nanoseconds, by the kind of the task that begins.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    /// From a call to the start of its task, if the stream was idle.
    launches: SortedMap<TaskKind, (i64, i64)>,
    /// From the end of a task to the start of the next, if that had been asked for before.
    gaps: SortedMap<TaskKind, (i64, i64)>,
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
        let mut launches: SortedMap<TaskKind, Vec<i64>> = SortedMap::default();
        let mut gaps: SortedMap<TaskKind, Vec<i64>> = SortedMap::default();
        for task in tasks {
            let Some(item) = task.item.map(|item| &items[item]) else { continue };
            let previous = task.previous.map(|previous| tasks[previous.task].end);
            let was_idle = previous.is_none_or(|end| end <= item.start);
            // If it took longer, the call did something else first, or the GPU was busy with work that is not known.
            let delay = nanos(item.start, task.start) as i64;
            if was_idle && delay < Self::LONGEST && task.kind != TaskKind::Graph {
                launches.or_default(task.kind).push(delay);
            }
            let was_queued = previous.filter(|&end| nanos(item.start, end) > 20_000);
            if let Some(end) = was_queued.filter(|&end| signed(end, task.start) < Self::longest_gap(task.kind)) {
                gaps.or_default(task.kind).push(signed(end, task.start));
            }
        }
        let least_and_median = |mut latencies: Vec<i64>| {
            latencies.sort_unstable();
            let at = |part: f64| latencies[(latencies.len() as f64 * part) as usize];
            (at(Self::LEAST), at(0.5))
        };
        Self { launches: launches.map_values(least_and_median), gaps: gaps.map_values(least_and_median) }
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
            earlier: false,
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
    let mut graphs = FxHashSet::default();
    for task in tasks.iter_mut().filter(|task| task.kind == TaskKind::Graph) {
        if task.item.is_some_and(|item| graphs.insert(item)) {
            task.kind = TaskKind::GraphStart;
        }
    }
    let mut streams: SortedMap<_, Vec<usize>> = SortedMap::default();
    for index in 0..tasks.len() {
        let stream = trace.work_of(tasks[index].work).stream();
        let earlier = streams.or_default((stream.device(), stream.context(), stream.number()));
        let gap = |&other: &usize| signed(tasks[other].end, tasks[index].start);
        let follows = earlier.iter().rev().take(BACK).find(|other| gap(other) >= -OVERLAP).copied();
        let previous = follows.map(|task| Previous { task, gap: (gap(&task), gap(&task)) });
        let is_first = follows.is_none_or(|task| tasks[task].earlier);
        tasks[index].earlier = has_calls && tasks[index].item.is_none() && is_first;
        tasks[index].previous = previous;
        earlier.push(index);
    }
    tasks
}

/// Returns the tasks in the order of their ends.
pub(super) fn by_end(tasks: &[Task]) -> Vec<usize> {
    let mut by_end: Vec<usize> = (0..tasks.len()).collect();
    by_end.sort_by_key(|&task| tasks[task].end);
    by_end
}

/// Finds out what each task waited for last, which has the latency that was recorded; other reasons have the least.
/// `by_end` has the tasks in the order of their ends.
pub(super) fn relate(tasks: &mut [Task], by_end: &[usize], items: &[Item], latencies: &Latencies) {
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
        let dependency = (late > EXPLAINED).then(|| dependency(tasks, by_end, index)).flatten();
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
