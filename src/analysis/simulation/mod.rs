//! A recorded window that can be run again with parts of it changed, to find out what a change would save.
//!
//! The window becomes a graph. Each thread that calls the GPU's API is a chain of [`Item`]s: its calls, and the time
//! between them, cut where spans begin and end. Each piece of GPU work is a [`Task`]: it begins when its call was made,
//! when the task before it in its stream has ended, and when the task of another stream that it seems to wait for has
//! ended, whichever is last. A call that waited for the GPU ends with the task that it waited for. Latencies are those
//! that were recorded. So if nothing is changed, [`run`](Simulation::run) gives the recorded times, and if something
//! takes less time, all that depended on it moves.
//!
//! Without GPU activity a window is the chain of its steps' thread, and each step takes the time of its items.
//!
//! Threads depend on each other only where [`waits`] finds that one seems to have waited for the other.

mod costs;
mod host;
mod path;
mod tasks;
mod waits;

pub(super) use self::{
    costs::Costs,
    host::Item,
    path::{Segment, SegmentKind},
    tasks::{Task, TaskKind},
};

use self::{
    host::Host,
    tasks::{Latencies, Previous},
};
use super::{quantile::lower_median, step_time::StepTime};
use crate::trace::{Span, StepId, Timestamp, Trace, Work};
use std::{ops::Range, time::Duration};

/// A window as items of the host and tasks of GPUs that depend on each other.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    pub(super) trace: &'a Trace,
    pub(super) items: Vec<Item>,
    pub(super) tasks: Vec<Task>,
    /// Items and tasks in an order in which each comes after all that it depends on.
    order: Vec<SimulationNode>,
    /// The items of the steps' thread from the first step that is looked at to the last.
    measured: Range<usize>,
    /// The steps that are looked at, in order.
    pub(super) steps: Vec<StepId>,
    /// Whether each of these steps is an outlier: it compiles, tunes or writes a checkpoint.
    pub(super) slow: Vec<bool>,
    /// The part of its time that the host takes while nothing is recorded, if that is known.
    pub(super) host: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum SimulationNode {
    Item(usize),
    Task(usize),
}

/// When an item or a task begins and ends.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    start: i64,
    end: i64,
    /// When the stream of a task has ended it and all before it.
    stream: i64,
}

/// The mean of times.
pub(super) fn mean(times: impl IntoIterator<Item = Duration>) -> Duration {
    let (sum, count) = times.into_iter().fold((Duration::ZERO, 0_u32), |(sum, count), time| (sum + time, count + 1));
    sum / count.max(1)
}

impl<'a> Simulation<'a> {
    /// The most spans, calls and pieces of work that are looked at, unless the first step has more: each takes some 300
    /// bytes while findings are made.
    const LARGEST: usize = 100_000;
    /// The most steps and spans that are looked at without GPU activity. A typical step takes few steps to see, and all
    /// windows of such programs are simulated, so that it must fit into small memory limits: see `tests/memory`.
    pub(super) const LARGEST_ON_HOST: usize = 4_000;

    /// Returns the graph of a window; `None` if it has no whole step, or has GPU activity and none of that is work in a
    /// whole step.
    pub(super) fn of(trace: &'a Trace) -> Option<Self> {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        let has_gpu = trace.work().len() > 0 || trace.api_calls().len() > 0;
        let steps = if has_gpu { steps(trace) } else { steps_of_one_thread(trace) };
        let (first, last) = (trace.steps().get(steps.first()?.index())?, trace.steps().get(steps.last()?.index())?);
        let Host { mut items, item_of_call } = Host::of(trace, last.end());
        let mut tasks = tasks::of(trace, last.end(), &item_of_call);
        if !is_sane(trace, &items, &tasks) {
            return None;
        }
        let latencies = Latencies::of(&tasks, &items);
        let by_end = tasks::by_end(&tasks);
        tasks::relate(&mut tasks, &by_end, &items, &latencies);
        waits::relate_to_tasks(trace, &mut items, &tasks, &by_end);
        let thread = trace.track(first.track_id()).thread();
        waits::relate_threads(trace, &mut items, thread);
        let of_steps = |item: &Item| item.thread == thread && first.start() <= item.start && item.end <= last.end();
        let from = items.iter().position(of_steps)?;
        let to = items.iter().rposition(of_steps)? + 1;
        let in_steps = |task: &&Task| first.start() <= task.asked && task.asked < last.end();
        if has_gpu {
            tasks.iter().find(in_steps)?;
        }
        for task in &mut tasks {
            task.measured = in_steps(&&*task);
        }
        let order = order(&items, &tasks);
        let slow = vec![false; steps.len()];
        let mut simulation = Self { trace, items, tasks, order, measured: from..to, steps, slow, host: None };
        simulation.slow = simulation.slow_steps();
        simulation.host = trace.unrecorded_step().filter(|_| has_gpu).and_then(|step| simulation.host_at(step));
        Some(simulation)
    }

    /// Finds the steps that are outliers, as recorded.
    fn slow_steps(&self) -> Vec<bool> {
        let times = self.step_times(&self.recorded());
        let longest = StepTime::longest(times.iter().copied());
        times.into_iter().map(|time| time > longest).collect()
    }

    /// Whether there is no GPU activity: the window is a chain of host time.
    pub(super) fn is_host_only(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The costs that were recorded.
    pub(super) fn recorded(&self) -> Costs {
        Costs {
            items: self.items.iter().map(Item::own_nanos).collect(),
            waits: vec![true; self.items.len()],
            tasks: self.tasks.iter().map(|task| nanos(task.start, task.end)).collect(),
            ordered: vec![true; self.tasks.len()],
            exists: vec![true; self.tasks.len()],
            host: 1.0,
            typical: false,
            latencies: 1.0,
            longest_gap: i64::MAX,
            longest_launch: i64::MAX,
            is_recorded: true,
        }
    }

    /// Runs the window at these costs, and returns the time of each of [`steps`](Self::steps), from the end of the step
    /// before it to its own. A step ends when the host is done with it and the GPU with all work that it launched,
    /// whichever is later: if the host runs ahead, its own time says nothing.
    pub(super) fn step_times(&self, costs: &Costs) -> Vec<Duration> {
        let (items, tasks) = self.times(costs);
        let place = |step: Option<StepId>| self.steps.binary_search(&step?).ok();
        let mut ends: Vec<i64> = vec![i64::MIN; self.steps.len()];
        let mut on_host: Vec<Option<(i64, i64)>> = vec![None; self.steps.len()];
        let (mut host, mut gpu) = ((i64::MAX, i64::MIN), (i64::MAX, i64::MIN));
        let mut add = |range: &mut (i64, i64), step: usize, times: Times| {
            *range = (range.0.min(times.start), range.1.max(times.end));
            ends[step] = ends[step].max(times.end);
        };
        for index in self.measured.clone() {
            if let Some(step) = place(self.items[index].step) {
                add(&mut host, step, items[index]);
                let start = on_host[step].map_or(items[index].start, |(start, _)| start);
                on_host[step] = Some((start, items[index].end));
            }
        }
        for (index, task) in self.tasks.iter().enumerate().filter(|(index, task)| task.measured && costs.exists[*index])
        {
            if let Some(step) = place(task.item.and_then(|item| self.items[item].step)) {
                // Out of its stream's order, a task may run long before the work of its step.
                let start = if costs.ordered[index] { tasks[index].start } else { i64::MAX };
                add(&mut gpu, step, Times { start, ..tasks[index] });
            }
        }
        let mut times: Vec<Duration> = ends.windows(2).map(|pair| duration(pair[0], pair[1])).collect();
        let sum = times.iter().sum();
        // The first one is what the others leave of the time of all. If the GPU was still busy with work from before,
        // where it begins with that step is not known: then it takes no longer than others do.
        let of_gpu = duration(gpu.0, gpu.1).saturating_sub(sum);
        let of_gpu =
            if times.len() < 2 { of_gpu } else { of_gpu.min(lower_median(times.iter().copied()).unwrap_or_default()) };
        times.insert(0, of_gpu.max(duration(host.0, host.1).saturating_sub(sum)));
        // What the host does between two steps is not part of either.
        for (step, pair) in on_host.windows(2).enumerate() {
            if let [Some((_, end)), Some((start, _))] = *pair {
                times[step + 1] = times[step + 1].saturating_sub(duration(end, start));
            }
        }
        times
    }

    /// Runs the window at these costs, and returns the mean time of the steps that are not slow.
    pub(super) fn run(&self, costs: &Costs) -> Duration {
        mean(self.step_times(costs).into_iter().zip(&self.slow).filter(|(_, slow)| !**slow).map(|(time, _)| time))
    }

    /// Returns when each item and each task begins and ends at these costs.
    fn times(&self, costs: &Costs) -> (Vec<Times>, Vec<Times>) {
        let mut items = vec![Times::default(); self.items.len()];
        let mut tasks = vec![Times::default(); self.tasks.len()];
        let mut moved = i64::MIN;
        for &node in &self.order {
            match node {
                SimulationNode::Item(index) => {
                    let item = &self.items[index];
                    let start = items[index].start;
                    let mut end = start + (costs.items[index] as f64 * costs.host) as i64;
                    if let Some(wait) = item.wait.filter(|_| costs.waits[index]) {
                        let tail = if costs.is_recorded { wait.tail } else { wait.own_tail() };
                        end = end.max(tail + wait.end(&items, &tasks));
                    }
                    items[index] = Times { start, end, stream: end };
                    // The start of a call must be known before it returns, as its work may begin before that.
                    if self.items.get(index + 1).is_some_and(|next| next.thread == item.thread) {
                        items[index + 1].start = end;
                    }
                }
                SimulationNode::Task(index) => tasks[index] = self.run_task(index, costs, &items, &tasks, &mut moved),
            }
        }
        (items, tasks)
    }

    /// Returns when a task begins and ends. `moved` is the end of the last task that was taken out of its stream's
    /// order.
    fn run_task(&self, index: usize, costs: &Costs, items: &[Times], tasks: &[Times], moved: &mut i64) -> Times {
        let task = &self.tasks[index];
        let before = task.previous.map(|previous| tasks[previous.task].stream);
        if !costs.exists[index] {
            let end = before.unwrap_or(i64::MIN / 2);
            return Times { start: end, end, stream: end };
        }
        let latency = |recorded| costs.latency(task.kind, recorded);
        let is_moved = !costs.ordered[index];
        let before_window = task.waited_before.filter(|_| !costs.is_recorded);
        let launch = before_window.unwrap_or_else(|| task.launch(costs.typical));
        let asked = task.item.map(|item| items[item].start + latency(launch).min(costs.longest_launch));
        let gap = |previous: Previous| latency(previous.gap(costs.typical)).min(costs.longest_gap);
        let in_stream = task.previous.zip(before).map(|(previous, end)| end + gap(previous));
        let dependency = |previous: Previous| tasks[previous.task].end + latency(previous.gap(costs.typical));
        let reasons = asked.into_iter().chain(if is_moved { Some(*moved) } else { in_stream });
        let start = reasons.chain(task.dependency.map(dependency)).max();
        let start = start.unwrap_or_else(|| signed(self.trace.start(), task.start));
        let end = start + costs.tasks[index] as i64;
        if is_moved {
            *moved = end;
        }
        Times { start, end, stream: if is_moved { before.unwrap_or(i64::MIN / 2) } else { end } }
    }

    /// Returns how far the time of a step is from the recorded one if each latency is a typical one: the error of what
    /// else is computed by it, from 0 up.
    pub(super) fn error(&self) -> f64 {
        let recorded = self.run(&self.recorded()).as_secs_f64();
        let typical = self.run(&Costs { typical: true, ..self.recorded() }).as_secs_f64();
        if recorded > 0.0 { (typical - recorded).abs() / recorded } else { 0.0 }
    }
}

/// Whether all times are near the window, so that sums do not overflow: records may be garbage.
fn is_sane(trace: &Trace, items: &[Item], tasks: &[Task]) -> bool {
    const LONGEST: u64 = 6 * 3_600_000_000_000;
    let origin = trace.start().as_unix_nanos();
    let is_near = |at: Timestamp| at.as_unix_nanos().abs_diff(origin) < LONGEST;
    let mut items = items.iter().flat_map(|item| [item.start, item.end]);
    let mut tasks = tasks.iter().flat_map(|task| [task.start, task.end, task.asked]);
    items.all(is_near) && tasks.all(is_near)
}

/// Returns the whole steps of a trace, as many as have a bearable size; none if no step has GPU work.
fn steps(trace: &Trace) -> Vec<StepId> {
    if trace.work().all(|work| work.step_id().is_none()) {
        return Vec::new();
    }
    // Most pieces of work have a call of their own.
    let work = trace.work().filter_map(Work::step_id).flat_map(|step| [step, step]);
    let mut sizes = vec![0_usize; trace.steps().len()];
    for step in work.chain(trace.spans().filter_map(Span::step_id)) {
        sizes[step.index()] += 1;
    }
    let whole = trace.step_ids().filter(|step| !trace.steps()[step.index()].cut().any());
    let mut sum = 0;
    let mut steps = Vec::new();
    for step in whole {
        sum += sizes[step.index()];
        if sum > Simulation::LARGEST && !steps.is_empty() {
            break;
        }
        steps.push(step);
    }
    steps
}

/// Returns the whole steps of a trace without GPU activity, as many as have a bearable size; none if they are of
/// several threads, or if the first one is too large.
fn steps_of_one_thread(trace: &Trace) -> Vec<StepId> {
    let whole = || trace.step_ids().filter(|step| !trace.steps()[step.index()].cut().any());
    let thread = |step: StepId| trace.track(trace.steps()[step.index()].track_id()).thread();
    // Without spans there is nothing to find.
    if trace.spans().len() == 0 || whole().next().is_none_or(|first| whole().any(|step| thread(step) != thread(first)))
    {
        return Vec::new();
    }
    // Each step counts for one, so that no more can be looked at.
    let mut sizes = vec![1_usize; trace.steps().len().min(Simulation::LARGEST_ON_HOST)];
    for step in trace.spans().filter_map(Span::step_id) {
        sizes.get_mut(step.index()).into_iter().for_each(|size| *size += 1);
    }
    let mut sum = 0;
    let is_bearable = |step: &StepId| {
        sum += sizes.get(step.index()).copied().unwrap_or(Simulation::LARGEST_ON_HOST);
        sum <= Simulation::LARGEST_ON_HOST
    };
    whole().take_while(is_bearable).collect()
}

/// The time between two moments of a run.
fn duration(from: i64, to: i64) -> Duration {
    Duration::from_nanos(to.saturating_sub(from).max(0) as u64)
}

/// Returns items and tasks in the order of what decides when they are known: an item is known when it ends, a task when
/// it begins.
fn order(items: &[Item], tasks: &[Task]) -> Vec<SimulationNode> {
    let items = items.iter().enumerate().map(|(index, item)| ((item.end, 0), SimulationNode::Item(index)));
    let tasks = tasks.iter().enumerate().map(|(index, task)| ((task.known(), 1), SimulationNode::Task(index)));
    let mut order: Vec<_> = items.chain(tasks).collect();
    order.sort_by_key(|(key, _)| *key);
    order.into_iter().map(|(_, node)| node).collect()
}

fn nanos(from: Timestamp, to: Timestamp) -> u64 {
    to.as_unix_nanos().saturating_sub(from.as_unix_nanos())
}

/// Returns the nanoseconds between two moments, negative if the second is the earlier.
fn signed(from: Timestamp, to: Timestamp) -> i64 {
    let nanos = |from, to| i64::try_from(nanos(from, to)).unwrap_or(i64::MAX);
    nanos(from, to) - nanos(to, from)
}

#[cfg(test)]
thread_local! {
    /// The number of simulations that this thread has made.
    pub(super) static MADE: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
mod tests;
