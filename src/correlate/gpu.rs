//! Joins GPU records to the API calls that caused them, and so to the spans around the calls.

use super::{
    nest::{Query, innermost},
    streams::{Rows, rows},
};
use crate::{
    analysis::WorkKind,
    clock::{Ticks, Timeline},
    gallop_search::GallopSearch,
    recording::{GpuRecording, Origin, OverheadRecord, Pool, WaitRecord, WorkRecord},
    trace::{
        AllocationData, ApiCallId, Attribution, Collective, DeviceId, GpuCounters, MemoryChange, Overhead, Step,
        StepId, ThreadId, Timestamp, Trace, WaitData, WorkData, WorkId,
    },
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

/// The origins of calls, allocations and operations; `None` for those that a thread made on its own behalf.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The origin of each of the trace's API calls.
    pub(super) calls: Vec<Option<Origin>>,
    /// The origin of each of the trace's allocations.
    pub(super) allocations: Vec<Option<Origin>>,
    /// The origin of each of the trace's operations.
    pub(super) operations: Vec<Option<Origin>>,
    /// The collectives that frameworks reported, with the correlation id of the launch of each.
    pub(super) collectives: Vec<(u32, Arc<Collective>)>,
}

/// Adds the GPU's records to a trace that already has spans, steps, API calls and allocations.
///
/// `requested` has the moment at which each API call was asked for, as [`hand_over`] returns it.
pub(crate) fn join_gpu(trace: &mut Trace, recording: GpuRecording, requested: Vec<Timestamp>) {
    let GpuRecording { gpu, devices, work, waits, overheads, pools, contexts, losses, counters, .. } = recording;
    trace.gpu = gpu;
    trace.devices = devices.to_vec();
    trace.losses += losses;
    trace.losses.gpu_counter_samples += counters.iter().map(GpuCounters::lost).sum::<u64>();
    trace.gpu_counters.extend(counters);
    let by_correlation = by_correlation(trace);
    let mut search = GallopSearch::default();
    let mut call_of = |correlation: u32| {
        search.find(&by_correlation, |(id, _)| id.cmp(&correlation)).map(|index| by_correlation[index].1)
    };
    add_work(trace, work, &mut call_of, &requested);
    trace.waits = waits.into_iter().map(|wait| wait_data(trace, wait, &contexts, &mut call_of)).collect();
    trace.waits.sort_by_key(|wait| wait.start);
    trace.overheads = overheads.into_iter().map(overhead).collect();
    count_memory(trace, &contexts, pools);
}

/// Gives kernels the collectives that were reported right after their launch. A kernel that is not one of NCCL's was
/// not launched for a collective; then the record of the right launch was lost.
pub(super) fn join_collectives(trace: &mut Trace, reported: Vec<(u32, Arc<Collective>)>) {
    let mut by_launch: FxHashMap<u32, Arc<Collective>> = FxHashMap::default();
    for (correlation, collective) in reported {
        match by_launch.entry(correlation) {
            Entry::Occupied(mut entry) => Arc::make_mut(entry.get_mut()).merge(&collective),
            Entry::Vacant(entry) => drop(entry.insert(collective)),
        }
    }
    if by_launch.is_empty() {
        return;
    }
    for index in 0..trace.work.len() {
        let work = trace.work_of(WorkId::new(index));
        let (id, correlation) = (work.id(), work.correlation());
        if WorkKind::of(work) == WorkKind::Communication {
            let collective = by_launch.get(&correlation).map(|collective| (id, Arc::clone(collective)));
            trace.collectives.extend(collective);
        }
    }
}

/// Attributes calls, allocations and operations that a thread made on behalf of others to the others' spans, and each
/// operation to its step. Returns the moment at which each API call was asked for: that of its origin if it has one,
/// otherwise its start.
pub(super) fn hand_over(trace: &mut Trace, origins: &Origins, timeline: &Timeline, open: Ticks) -> Vec<Timestamp> {
    let mut requested: Vec<_> = trace.api_calls.iter().map(|call| call.start).collect();
    let queries_of = |origins: &[Option<Origin>]| -> Vec<(usize, Query)> {
        let handed_over = origins.iter().enumerate().filter_map(|(index, origin)| Some((index, (*origin)?)));
        // It is not known which spans were open before the window. No span is open at the moment 0, which marks that.
        let moment = |at: Ticks| if at < open { Timestamp::default() } else { timeline.at(at) };
        let query = |origin: Origin| Query { thread: origin.thread(), at: moment(origin.at), answer: None };
        handed_over.map(|(index, origin)| (index, query(origin))).collect()
    };
    let (calls, mut queries): (Vec<_>, Vec<_>) = queries_of(&origins.calls).into_iter().unzip();
    let (allocations, allocation_queries): (Vec<_>, Vec<_>) = queries_of(&origins.allocations).into_iter().unzip();
    let (operations, operation_queries): (Vec<_>, Vec<_>) = queries_of(&origins.operations).into_iter().unzip();
    queries.extend(allocation_queries);
    queries.extend(operation_queries);
    innermost(trace, &mut queries);
    let mut answers = queries.into_iter();
    let attribution = |query: &Query| match query.answer {
        Some(_) => Attribution::HandedOff,
        None if query.at == Timestamp::default() => Attribution::Before,
        None => Attribution::Unattributed,
    };
    for (index, query) in calls.into_iter().zip(answers.by_ref()) {
        let call = &mut trace.api_calls[index];
        (call.span, call.attribution) = (query.answer, attribution(&query));
        requested[index] = query.at;
    }
    for (index, query) in allocations.into_iter().zip(answers.by_ref()) {
        let allocation = &mut trace.allocations[index];
        (allocation.span, allocation.attribution) = (query.answer, attribution(&query));
    }
    let mut search = GallopSearch::default();
    for operation in &mut trace.operation_calls {
        operation.step = step_at(&trace.steps, &mut search, operation.at);
    }
    for (index, query) in operations.into_iter().zip(answers) {
        let operation = &mut trace.operation_calls[index];
        (operation.span, operation.attribution) = (query.answer, attribution(&query));
        operation.step = step_at(&trace.steps, &mut search, query.at);
    }
    requested
}

/// Returns the API calls in the order of their correlation ids.
fn by_correlation(trace: &Trace) -> Vec<(u32, ApiCallId)> {
    let calls = trace.api_calls.iter().enumerate().map(|(index, call)| (call.correlation, ApiCallId::new(index)));
    let mut calls: Vec<_> = calls.collect();
    // The calls of each thread are nearly in this order already, which makes a stable sort quick.
    calls.sort_by_key(|&(correlation, _)| correlation);
    calls
}

/// Adds GPU work to a trace, with the rows that it is on.
fn add_work(
    trace: &mut Trace,
    records: Vec<WorkRecord>,
    mut call_of: impl FnMut(u32) -> Option<ApiCallId>,
    requested: &[Timestamp],
) {
    let Rows { streams, work } = rows(&records);
    trace.streams = streams;
    let mut search = GallopSearch::default();
    // Work belongs to the step that launched it. If calls were recorded, work without one was launched before them.
    let is_unknown = trace.api_calls.is_empty();
    // Each record is moved out of its slot once. There may be a million, so they are not sorted or copied first.
    let mut records: Vec<_> = records.into_iter().map(Some).collect();
    let mut data = Vec::with_capacity(records.len());
    for (stream, index) in work {
        let Some(record) = records[index as usize].take() else { continue };
        let WorkRecord { detail, start, end, correlation, graph, .. } = record;
        let call = call_of(correlation);
        let owner = call.map(|id| &trace.api_calls[id.index()]);
        data.push(WorkData {
            detail,
            stream,
            start,
            end,
            correlation,
            graph,
            call,
            attribution: owner.map_or(Attribution::Unattributed, |call| call.attribution),
            span: owner.and_then(|call| call.span),
            step: call
                .map(|id| requested[id.index()])
                .or(is_unknown.then_some(start))
                .and_then(|at| step_at(&trace.steps, &mut search, at)),
        });
    }
    trace.work = data;
}

/// Returns the step in which a moment lies.
fn step_at(steps: &[Step], search: &mut GallopSearch, at: Timestamp) -> Option<StepId> {
    let after = search.count_before(steps, |step| step.start <= at);
    after.checked_sub(1).filter(|&step| at < steps[step].end).map(StepId::new)
}

fn wait_data(
    trace: &Trace,
    record: WaitRecord,
    contexts: &FxHashMap<u32, u32>,
    call_of: impl FnOnce(u32) -> Option<ApiCallId>,
) -> WaitData {
    let WaitRecord { kind, start, end, correlation, context, stream, event } = record;
    let call = call_of(correlation);
    let owner = call.map(|id| &trace.api_calls[id.index()]);
    WaitData {
        kind,
        start,
        end,
        correlation,
        device: contexts.get(&context).copied().map(DeviceId::new),
        context,
        stream,
        event,
        call,
        attribution: owner.map_or(Attribution::Unattributed, |call| call.attribution),
        span: owner.and_then(|call| call.span),
    }
}

fn overhead(record: OverheadRecord) -> Overhead {
    let OverheadRecord { name, thread, start, end } = record;
    Overhead { name, thread: thread.map(|thread| ThreadId::new(thread.into())), start, end }
}

/// Fills in the device of each allocation, the size of each free, and how much memory was in use after it. Moves the
/// driver's allocations on devices whose tensors a framework reports to the pages.
fn count_memory(trace: &mut Trace, contexts: &FxHashMap<u32, u32>, pools: HashMap<u32, Pool>) {
    trace.allocations.sort_by_key(|allocation| allocation.at);
    for allocation in trace.allocations.iter_mut().filter(|allocation| !allocation.by_framework) {
        allocation.device = DeviceId::new(contexts.get(&allocation.context).copied().unwrap_or(0));
    }
    let reported = trace.allocations.iter().filter(|allocation| allocation.by_framework);
    let reported: FxHashSet<_> = reported.map(|allocation| allocation.device).collect();
    let is_page = |allocation: &AllocationData| !allocation.by_framework && reported.contains(&allocation.device);
    let mut pools: FxHashMap<_, _> = pools.into_iter().map(|(device, pool)| (DeviceId::new(device), pool)).collect();
    if !reported.is_empty() {
        (trace.pages, trace.allocations) = std::mem::take(&mut trace.allocations).into_iter().partition(is_page);
        count(&mut trace.pages, &mut pools.clone());
    }
    for device in reported {
        let (used, reserved) = trace.pools.get(&device).copied().unwrap_or_default();
        pools.insert(device, Pool { used, reserved });
    }
    count(&mut trace.allocations, &mut pools);
}

/// Fills in the size of each free, and how much memory was in use after each change.
fn count(allocations: &mut [AllocationData], pools: &mut FxHashMap<DeviceId, Pool>) {
    let mut sizes: FxHashMap<(DeviceId, u64), u64> = FxHashMap::default();
    for allocation in allocations {
        let Pool { used, reserved } = pools.entry(allocation.device).or_default();
        match allocation.change {
            MemoryChange::Allocate => {
                let bytes = allocation.bytes.unwrap_or(0);
                sizes.insert((allocation.device, allocation.address), bytes);
                *used = used.saturating_add(bytes);
            }
            MemoryChange::Free => {
                let size = sizes.remove(&(allocation.device, allocation.address));
                // A framework knows the size of what it allocated before the window.
                allocation.bytes = size.or(allocation.bytes.filter(|_| allocation.by_framework));
                *used = used.saturating_sub(allocation.bytes.unwrap_or(0));
            }
        }
        (allocation.in_use, allocation.reserved) = (*used, *used.max(reserved));
    }
}
