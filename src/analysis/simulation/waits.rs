//! What threads waited for: which calls waited for the GPU, and which threads for each other.
//!
//! A trace does not say which threads waited for each other. But a thread that launches work for others, as the device
//! threads of Burn and the autograd threads of PyTorch do, is in no span while it has nothing to do; and the thread
//! that waits for its results goes on when the other has finished.

use super::{
    host::{Item, WaitFor, WaitsOn},
    signed,
    tasks::Task,
};
use crate::{
    analysis::kinds::{is_allocation, is_copy, is_launch, is_synchronization, waits_for_gpu},
    trace::{ThreadId, Timestamp, Trace},
};
use std::ops::Range;

/// A call that takes less than this has not waited, unless it is one that always waits.
const LONG: u64 = 20_000;
/// The least number of tasks in the queue when a call that takes long waits for room in it: the others may be from
/// before the window.
const QUEUED: usize = 32;
/// The number of tasks from which on the queue is full, and any call that launches work waits for room, however short
/// the kernels are that make some. It holds 1,021 launches in all windows of `queues` of `benches/gpu`, and up to 1,021
/// in those of `benches/trainings`, some of which are copies.
const FULL: usize = 1_000;
/// A call whose work begins this much later, and that takes long itself, waits for room in a full queue. The queue
/// holds about a thousand launches, so that the GPU is many milliseconds behind when it is full.
const BEHIND: i64 = 2_000_000;
/// The time from the end of work until the host knows of it, at the most.
const TAIL: i64 = 100_000;
/// The part of a gap that another thread must be busy for, so that the gap was a wait for that thread.
const SHARE: f64 = 0.5;

/// Finds the items that waited, and what for. `by_end` has the tasks in the order of their ends.
pub(super) fn relate_to_tasks(trace: &Trace, items: &mut [Item], tasks: &[Task], by_end: &[usize]) {
    let mut own_tasks: Vec<Option<usize>> = vec![None; items.len()];
    for (index, task) in tasks.iter().enumerate() {
        // The last task of a call.
        if let Some(item) = task.item {
            own_tasks[item] = Some(index);
        }
    }
    let mut asked: Vec<_> = tasks.iter().map(|task| task.asked).collect();
    asked.sort_unstable();
    let least_queued = |item: &Item| if item.nanos() > LONG { QUEUED } else { FULL };
    // Tasks are in the order in which they began, but for those whose call is later by the clock.
    let is_known = |task: usize, item: &Item| tasks[task].known() < item.end;
    for index in 0..items.len() {
        let item = &items[index];
        let Some(call) = item.call.map(|id| trace.api_call(id)) else { continue };
        let last_ended = || {
            let past = by_end.partition_point(|&task| tasks[task].end <= item.end);
            by_end[..past].iter().rev().copied().find(|&task| is_known(task, item))
        };
        let on = match own_tasks[index].filter(|&task| is_known(task, item)) {
            Some(task) if tasks[task].end <= item.end => Some((WaitsOn::TaskEnd(task), tasks[task].end)),
            Some(task) if is_copy(call) && item.nanos() > LONG => Some((WaitsOn::TaskStart(task), tasks[task].start)),
            _ if waits_for_gpu(call) => last_ended().map(|task| (WaitsOn::TaskEnd(task), tasks[task].end)),
            // The queue was full: it waited until there was room, as a task had ended.
            Some(_) | None if is_launch(call) && queued(&asked, by_end, tasks, item) > least_queued(item) => {
                last_ended().map(|task| (WaitsOn::TaskEnd(task), tasks[task].end))
            }
            _ => None,
        };
        let of_item = on.map(|(on, at)| (WaitFor { on, tail: signed(at, item.end) }, at));
        let wait = of_item.filter(|(wait, at)| *at > item.start && wait.tail <= TAIL).map(|(wait, _)| wait);
        // Work from before the window has no call, and is where it is, whatever is changed.
        let is_earlier = |wait: &WaitFor| match wait.on {
            WaitsOn::TaskStart(task) | WaitsOn::TaskEnd(task) => tasks[task].item.is_none(),
            WaitsOn::Item(_) => false,
        };
        if wait.is_some_and(|wait| is_earlier(&wait)) {
            items[index].waited_before = true;
            continue;
        }
        // What it waited for is not known: the GPU was busy with work from before the window.
        let is_synchronous = on.is_none() && waits_for_gpu(call) && !is_allocation(call);
        let is_behind = own_tasks[index].is_some_and(|task| signed(item.end, tasks[task].start) > BEHIND);
        let waited_before = wait.is_none() && item.nanos() > LONG && (is_synchronous || is_behind);
        (items[index].wait, items[index].waited_before) = (wait, waited_before);
    }
}

/// Returns how many tasks had been asked for and had not ended when an item began.
fn queued(asked: &[Timestamp], by_end: &[usize], tasks: &[Task], item: &Item) -> usize {
    let begun = asked.partition_point(|&at| at < item.start);
    begun.saturating_sub(by_end.partition_point(|&task| tasks[task].end <= item.start))
}

/// Finds the gaps of the steps' thread in which it waited for another, and those of others in which they waited for it.
pub(super) fn relate_threads(trace: &Trace, items: &mut [Item], steps: ThreadId) {
    let threads = threads(items);
    let Some(main) = threads.iter().find(|range| items[range.start].thread == steps).cloned() else { return };
    let mut others: Vec<_> = threads.into_iter().filter(|other| *other != main).collect();
    // A wait for a thread that waits for the GPU says more than one for a thread that happens to launch meanwhile.
    others.sort_by_key(|other| items[other.clone()].iter().any(|item| launches(trace, item)));
    for other in others {
        wait_for_work(trace, items, main.clone(), other.clone());
        wait_for_results(trace, items, main.clone(), other);
    }
}

/// Returns the items of each thread.
fn threads(items: &[Item]) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    for of_thread in items.chunk_by(|one, next| one.thread == next.thread) {
        ranges.push(start..start + of_thread.len());
        start += of_thread.len();
    }
    ranges
}

/// Whether a thread does nothing: it is between calls, and in no span. Before a copy to the GPU, it may copy the data
/// itself, to page-locked memory.
fn is_idle(trace: &Trace, items: &[Item], index: usize) -> bool {
    let item = &items[index];
    let next = items.get(index + 1).filter(|next| next.thread == item.thread).and_then(|next| next.call);
    let copies = next.is_some_and(|id| trace.api_call(id).name().starts_with("cuMemcpyHtoD"));
    item.call.is_none() && item.span.is_none() && item.nanos() > LONG && !copies
}

/// Has idle gaps of another thread end when the steps' thread has come to where it came in the meantime.
fn wait_for_work(trace: &Trace, items: &mut [Item], main: Range<usize>, other: Range<usize>) {
    for index in other {
        if is_idle(trace, items, index) {
            let end = items[index].end;
            let past = main.start + items[main.clone()].partition_point(|item| item.end <= end);
            // If the steps' thread has not moved meanwhile, the gap was not for it.
            if past > main.start && items[past - 1].end > items[index].start {
                let tail = signed(items[past - 1].end, end);
                items[index].wait = Some(WaitFor { on: WaitsOn::Item(past - 1), tail });
            }
        }
    }
}

fn launches(trace: &Trace, item: &Item) -> bool {
    item.call.is_some_and(|id| is_launch(trace.api_call(id)))
}

/// Has gaps of the steps' thread end when another thread has finished what it launched or waited for meanwhile.
fn wait_for_results(trace: &Trace, items: &mut [Item], main: Range<usize>, other: Range<usize>) {
    let synchronizes = |item: &Item| item.call.is_some_and(|id| is_synchronization(trace.api_call(id)));
    // A gap is cut to the time of a wait that another thread makes for this one: see `host`.
    let is_whole = |gap: &Item, item: &Item| gap.nanos() <= item.nanos() + 2;
    let counts = |gap: &Item, item: &Item| launches(trace, item) || (synchronizes(item) && is_whole(gap, item));
    let mut next = other.start;
    for index in main {
        let gap = &items[index];
        if gap.call.is_some() || gap.nanos() <= LONG || gap.waited() {
            continue;
        }
        while next < other.end && items[next].end <= gap.start {
            next += 1;
        }
        let inside = (next..other.end).take_while(|&at| items[at].end < gap.end);
        let busy: Vec<usize> = inside.filter(|&at| !is_idle(trace, items, at)).collect();
        let nanos: u64 = busy.iter().map(|&at| items[at].nanos()).sum();
        let Some(&last) = busy.last().filter(|_| busy.iter().any(|&at| counts(gap, &items[at]))) else { continue };
        if nanos as i64 >= (SHARE * signed(gap.start, items[last].end) as f64) as i64 {
            let tail = signed(items[last].end, gap.end);
            items[index].wait = Some(WaitFor { on: WaitsOn::Item(last), tail });
        }
    }
}
