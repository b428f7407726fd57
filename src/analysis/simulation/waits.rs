//! Which calls waited for the GPU, and for which work.

use super::{
    item::{Item, WaitFor, WaitsOn},
    signed,
    task::Task,
};
use crate::{
    analysis::functions::{is_allocation, is_copy, is_launch, waits_for_gpu},
    trace::{Timestamp, Trace},
};

/// A call that takes less than this has not waited, unless it is one that always waits.
pub(super) const LONG: u64 = 20_000;
/// The least number of tasks in the queue when it is full. It holds some thousand, of which the first ones may be from
/// before the window.
const FULL: usize = 32;
/// A call whose work begins this much later, and that takes long itself, waits for room in a full queue. The queue
/// holds about a thousand launches, so that the GPU is many milliseconds behind when it is full.
const BEHIND: i64 = 2_000_000;
/// The time from the end of work until the host knows of it, at the most.
const TAIL: i64 = 100_000;

/// Finds the items that waited, and what for.
pub(super) fn relate(trace: &Trace, items: &mut [Item], tasks: &[Task]) {
    let mut own_tasks: Vec<Option<usize>> = vec![None; items.len()];
    for (index, task) in tasks.iter().enumerate() {
        // The last task of a call.
        if let Some(item) = task.item {
            own_tasks[item] = Some(index);
        }
    }
    let mut by_end: Vec<usize> = (0..tasks.len()).collect();
    by_end.sort_by_key(|&task| tasks[task].end);
    let mut asked: Vec<_> = tasks.iter().map(|task| task.asked).collect();
    asked.sort_unstable();
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
            Some(_) | None if is_launch(call) && item.nanos() > LONG && queued(&asked, &by_end, tasks, item) > FULL => {
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
