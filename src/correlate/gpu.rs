//! Joins what GPUs did to the calls that caused it, and so to the spans around them.

use super::{
    innermost::{Query, innermost},
    streams::{Rows, rows},
};
use crate::{
    clock::{Ticks, Timeline},
    gallop_search::GallopSearch,
    recording::{GpuRecording, Origin, OverheadRecord, Pool, WaitRecord, WorkRecord},
    trace::{
        ApiCallId, Attribution, DeviceId, MemoryChange, Overhead, Step, StepId, ThreadId, Timestamp, Trace, WaitData,
        WorkData,
    },
};
use rustc_hash::FxHashMap;
use std::collections::HashMap;

/// On whose behalf a call was made, if not on its thread's own.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// For each of the trace's calls.
    pub(super) calls: Vec<Option<Origin>>,
    /// For each of the trace's allocations.
    pub(super) allocations: Vec<Option<Origin>>,
    /// For each of the operations told of.
    pub(super) operations: Vec<Option<Origin>>,
}

/// Adds to a trace that has spans, steps, calls and allocations what came of the calls. `asked` is the moment that each call was
/// asked for.
pub(crate) fn join_gpu(trace: &mut Trace, recording: GpuRecording, asked: Vec<Timestamp>) {
    let GpuRecording { gpu, devices, work, waits, overheads, pools, contexts, losses, .. } = recording;
    trace.gpu = gpu;
    trace.devices = devices.to_vec();
    trace.losses += losses;
    let by_correlation = by_correlation(trace);
    let mut near = GallopSearch::default();
    let mut call_of = |correlation: u32| {
        near.find(&by_correlation, |(known, _)| known.cmp(&correlation)).map(|place| by_correlation[place].1)
    };
    add_work(trace, work, &mut call_of, &asked);
    trace.waits = waits.into_iter().map(|wait| wait_data(trace, wait, &contexts, &mut call_of)).collect();
    trace.waits.sort_by_key(|wait| wait.start);
    trace.overheads = overheads.into_iter().map(overhead).collect();
    count_memory(trace, &contexts, pools);
}

/// Gives calls that were made on behalf of others to the others' spans, and operations to their steps, too. Returns the moment each
/// call was asked for.
pub(super) fn hand_over(trace: &mut Trace, origins: &Origins, timeline: &Timeline, open: Ticks) -> Vec<Timestamp> {
    let mut asked: Vec<_> = trace.api_calls.iter().map(|call| call.start).collect();
    let handed = |origins: &[Option<Origin>]| -> Vec<(usize, Query)> {
        let handed = origins.iter().enumerate().filter_map(|(place, origin)| Some((place, (*origin)?)));
        // What was open before the window is not known.
        let moment = |at: Ticks| if at < open { Timestamp::default() } else { timeline.at(at) };
        let query = |origin: Origin| Query { thread: origin.thread(), at: moment(origin.at), answer: None };
        handed.map(|(place, origin)| (place, query(origin))).collect()
    };
    let (call_places, mut queries): (Vec<_>, Vec<_>) = handed(&origins.calls).into_iter().unzip();
    let (memory_places, memory): (Vec<_>, Vec<_>) = handed(&origins.allocations).into_iter().unzip();
    let (operation_places, operations): (Vec<_>, Vec<_>) = handed(&origins.operations).into_iter().unzip();
    queries.extend(memory);
    queries.extend(operations);
    innermost(trace, &mut queries);
    let mut answers = queries.into_iter();
    let attribution = |query: &Query| match query.answer {
        Some(_) => Attribution::HandedOff,
        None if query.at == Timestamp::default() => Attribution::Before,
        None => Attribution::Unattributed,
    };
    for (place, query) in call_places.into_iter().zip(answers.by_ref()) {
        let call = &mut trace.api_calls[place];
        (call.span, call.attribution) = (query.answer, attribution(&query));
        asked[place] = query.at;
    }
    for (place, query) in memory_places.into_iter().zip(answers.by_ref()) {
        let allocation = &mut trace.allocations[place];
        (allocation.span, allocation.attribution) = (query.answer, attribution(&query));
    }
    let mut near = GallopSearch::default();
    for operation in &mut trace.operation_calls {
        operation.step = step_at(&trace.steps, &mut near, operation.at);
    }
    for (place, query) in operation_places.into_iter().zip(answers) {
        let operation = &mut trace.operation_calls[place];
        (operation.span, operation.attribution) = (query.answer, attribution(&query));
        operation.step = step_at(&trace.steps, &mut near, query.at);
    }
    asked
}

fn by_correlation(trace: &Trace) -> Vec<(u32, ApiCallId)> {
    let calls = trace.api_calls.iter().enumerate().map(|(index, call)| (call.correlation, ApiCallId::new(index)));
    let mut calls: Vec<_> = calls.collect();
    // Nearly sorted already, thread by thread, which a stable sort makes use of.
    calls.sort_by_key(|&(correlation, _)| correlation);
    calls
}

fn add_work(
    trace: &mut Trace,
    records: Vec<WorkRecord>,
    mut call_of: impl FnMut(u32) -> Option<ApiCallId>,
    asked: &[Timestamp],
) {
    let Rows { streams, work } = rows(&records);
    trace.streams = streams;
    let mut near = GallopSearch::default();
    // Each is taken once; in place, as there may be a million.
    let mut records: Vec<_> = records.into_iter().map(Some).collect();
    let mut data = Vec::with_capacity(records.len());
    for (stream, place) in work {
        let Some(record) = records[place as usize].take() else { continue };
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
            step: step_at(&trace.steps, &mut near, call.map_or(start, |id| asked[id.index()])),
        });
    }
    trace.work = data;
}

fn step_at(steps: &[Step], near: &mut GallopSearch, at: Timestamp) -> Option<StepId> {
    let after = near.count_before(steps, |step| step.start <= at);
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

/// Works out how much memory was freed and how much was in use.
fn count_memory(trace: &mut Trace, contexts: &FxHashMap<u32, u32>, mut pools: HashMap<u32, Pool>) {
    trace.allocations.sort_by_key(|allocation| allocation.at);
    let mut sizes: FxHashMap<(u32, u64), u64> = FxHashMap::default();
    for allocation in &mut trace.allocations {
        let device = contexts.get(&allocation.context).copied().unwrap_or(0);
        allocation.device = DeviceId::new(device);
        let Pool { used, reserved } = pools.entry(device).or_default();
        match allocation.change {
            MemoryChange::Allocate => {
                let bytes = allocation.bytes.unwrap_or(0);
                sizes.insert((device, allocation.address), bytes);
                *used = used.saturating_add(bytes);
            }
            MemoryChange::Free => {
                allocation.bytes = sizes.remove(&(device, allocation.address));
                *used = used.saturating_sub(allocation.bytes.unwrap_or(0));
            }
        }
        (allocation.in_use, allocation.reserved) = (*used, *used.max(reserved));
    }
}
