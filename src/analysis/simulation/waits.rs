//! Which calls waited for the GPU, and for which work.

use super::{host::Item, signed, tasks::Task};
use crate::trace::{ApiCall, Trace};

/// The end of something that an item waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitFor {
    pub(super) on: WaitsOn,
    /// The nanoseconds from that until the item ended.
    pub(super) tail: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum WaitsOn {
    /// A task begins.
    TaskStart(usize),
    /// A task ends.
    TaskEnd(usize),
    /// An item of another thread ends.
    Item(usize),
}

impl WaitFor {
    /// Returns when the item may end, at these times of items and tasks.
    pub(super) fn end(self, items: &[(i64, i64)], tasks: &[(i64, i64)]) -> i64 {
        self.tail
            + match self.on {
                WaitsOn::TaskStart(task) => tasks[task].0,
                WaitsOn::TaskEnd(task) => tasks[task].1,
                WaitsOn::Item(item) => items[item].1,
            }
    }
}

/// A call that takes less than this has not waited, unless it is one that always waits.
pub(super) const LONG: u64 = 20_000;
/// The time from the end of work until the host knows of it, at the most.
pub(super) const TAIL: i64 = 100_000;

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
            Some(_) | None if is_launch(call) && item.nanos() > LONG => {
                last_ended().map(|task| (WaitsOn::TaskEnd(task), tasks[task].end))
            }
            _ => None,
        };
        let of_item = on.map(|(on, at)| (WaitFor { on, tail: signed(at, item.end) }, at));
        items[index].wait =
            of_item.filter(|(wait, at)| *at > items[index].start && wait.tail <= TAIL).map(|(wait, _)| wait);
    }
}

/// Whether a function waits for the GPU, as its name says.
pub(in crate::analysis) fn waits_for_gpu(call: ApiCall<'_>) -> bool {
    let name = call.name();
    name.ends_with("Synchronize") || is_allocation(call) || name == "cuModuleUnload" || name == "cuLibraryUnload"
}

/// Whether a function allocates or frees memory without a pool, which may wait for the GPU.
pub(in crate::analysis) fn is_allocation(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = ["cuMemAlloc", "cuMemFree", "cuMemHost", "cudaMalloc", "cudaFree", "cudaHostAlloc"];
    names.iter().any(|prefix| name.starts_with(prefix)) && !name.contains("Async")
}

/// Whether a function copies memory.
pub(in crate::analysis) fn is_copy(call: ApiCall<'_>) -> bool {
    call.name().starts_with("cuMemcpy") || call.name().starts_with("cudaMemcpy")
}

/// Whether a function launches a kernel or a graph.
pub(in crate::analysis) fn is_launch(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = ["cuLaunch", "cudaLaunch", "cuGraphLaunch", "cudaGraphLaunch"];
    names.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a function loads or unloads kernels.
pub(in crate::analysis) fn is_load(call: ApiCall<'_>) -> bool {
    let name = call.name();
    let names = ["cuModule", "cuLibrary", "cudaLibrary"];
    names.iter().any(|prefix| name.starts_with(prefix)) && name.contains("oad")
}
