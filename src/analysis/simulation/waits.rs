//! Which calls waited for the GPU, and for which work.

use super::{Times, host::Item, signed, tasks::Task};
use crate::trace::{ApiCall, Timestamp, Trace};

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
    /// The nanoseconds by which recording makes the end of a wait for the GPU later, at the most by half. Measured with
    /// CUPTI 13.0 on an H200: see `benches/README.md`.
    const OVERHEAD: i64 = 7_000;

    /// Returns when that ends which is waited for, at these times of items and tasks.
    pub(super) fn end(self, items: &[Times], tasks: &[Times]) -> i64 {
        match self.on {
            WaitsOn::TaskStart(task) => tasks[task].start,
            WaitsOn::TaskEnd(task) => tasks[task].end,
            WaitsOn::Item(item) => items[item].end,
        }
    }

    /// The tail without the cost of recording.
    pub(super) fn own_tail(self) -> i64 {
        match self.on {
            WaitsOn::TaskEnd(_) => (self.tail / 2).max(self.tail - Self::OVERHEAD),
            WaitsOn::TaskStart(_) | WaitsOn::Item(_) => self.tail,
        }
    }
}

/// A call that takes less than this has not waited, unless it is one that always waits.
pub(super) const LONG: u64 = 20_000;
/// The least number of tasks in the queue when it is full. It holds some thousand, of which the first ones may have been
/// asked for before the window.
const FULL: usize = 32;
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
        if on.is_none() && item.nanos() > LONG && waits_for_gpu(call) && !is_allocation(call) {
            items[index].waited_before = true;
            continue;
        }
        let of_item = on.map(|(on, at)| (WaitFor { on, tail: signed(at, item.end) }, at));
        items[index].wait =
            of_item.filter(|(wait, at)| *at > items[index].start && wait.tail <= TAIL).map(|(wait, _)| wait);
    }
}

/// Returns how many tasks had been asked for and had not ended when an item began.
fn queued(asked: &[Timestamp], by_end: &[usize], tasks: &[Task], item: &Item) -> usize {
    let begun = asked.partition_point(|&at| at < item.start);
    begun.saturating_sub(by_end.partition_point(|&task| tasks[task].end <= item.start))
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
