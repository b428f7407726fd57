//! Which threads waited for each other.
//!
//! A trace does not say so. But a thread that launches work for others, as the device threads of Burn and the autograd
//! threads of PyTorch do, is in no span while it has nothing to do; and the thread that waits for its results goes on
//! when the other has finished.

use super::{
    item::{Item, WaitFor, WaitsOn},
    signed,
    waits::LONG,
};
use crate::{
    analysis::functions::{is_launch, is_synchronization},
    trace::{ThreadId, Trace},
};
use std::ops::Range;

/// The part of a gap that another thread must be busy for, so that the gap was a wait for that thread.
const SHARE: f64 = 0.5;

/// Finds the gaps of the steps' thread in which it waited for another, and those of others in which they waited for it.
pub(super) fn relate(trace: &Trace, items: &mut [Item], steps: ThreadId) {
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
