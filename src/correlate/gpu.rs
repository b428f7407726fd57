//! Joins what GPUs did to the calls that caused it, and so to the spans around them.

use super::innermost::{Query, innermost};
use crate::{
    clock::Timeline,
    gpu::{GpuRecording, OverheadRecord, WaitRecord, WorkRecord},
    host::Origin,
    trace::{
        ApiCallId, Attribution, DeviceId, MemoryChange, Overhead, StepId, Stream, StreamId, ThreadId, Timestamp, Trace,
        WaitData, WorkData,
    },
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
};

/// On whose behalf a call was made, if not on its thread's own.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// For each of the trace's calls.
    pub(super) calls: Vec<Option<Origin>>,
    /// For each of the trace's allocations.
    pub(super) allocations: Vec<Option<Origin>>,
}

/// Adds to a trace that has spans, steps, calls and allocations what came of the calls. `asked` is the moment that each call was
/// asked for.
pub(crate) fn join_gpu(trace: &mut Trace, recording: GpuRecording, asked: Vec<Timestamp>) {
    let GpuRecording { gpu, devices, work, waits, overheads, in_use, contexts, losses, .. } = recording;
    trace.gpu = gpu;
    trace.devices = devices.to_vec();
    trace.losses += losses;
    let by_correlation = by_correlation(trace);
    let call_of = |correlation: u32| {
        let place = by_correlation.partition_point(|&(known, _)| known < correlation);
        by_correlation.get(place).filter(|(known, _)| *known == correlation).map(|&(_, call)| call)
    };
    add_work(trace, work, call_of, &asked);
    trace.waits = waits.into_iter().map(|wait| wait_data(trace, wait, &contexts, call_of)).collect();
    trace.waits.sort_by_key(|wait| wait.start);
    trace.overheads = overheads.into_iter().map(overhead).collect();
    count_memory(trace, &contexts, &in_use);
}

/// Gives calls that were made on behalf of others to the others' spans. Returns the moment each call was asked for.
pub(super) fn hand_over(trace: &mut Trace, origins: &Origins, timeline: &Timeline) -> Vec<Timestamp> {
    let mut asked: Vec<_> = trace.api_calls.iter().map(|call| call.start).collect();
    let handed = |origins: &[Option<Origin>]| -> Vec<(usize, Query)> {
        let handed = origins.iter().enumerate().filter_map(|(place, origin)| Some((place, (*origin)?)));
        let query = |origin: Origin| Query { thread: origin.thread(), at: timeline.at(origin.at), answer: None };
        handed.map(|(place, origin)| (place, query(origin))).collect()
    };
    let (call_places, mut queries): (Vec<_>, Vec<_>) = handed(&origins.calls).into_iter().unzip();
    let (memory_places, memory): (Vec<_>, Vec<_>) = handed(&origins.allocations).into_iter().unzip();
    queries.extend(memory);
    innermost(trace, &mut queries);
    let mut answers = queries.into_iter();
    let attribution = |query: &Query| match query.answer {
        Some(_) => Attribution::HandedOff,
        None => Attribution::Unattributed,
    };
    for (place, query) in call_places.into_iter().zip(answers.by_ref()) {
        let call = &mut trace.api_calls[place];
        (call.span, call.attribution) = (query.answer, attribution(&query));
        asked[place] = query.at;
    }
    for (place, query) in memory_places.into_iter().zip(answers) {
        let allocation = &mut trace.allocations[place];
        (allocation.span, allocation.attribution) = (query.answer, attribution(&query));
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
    mut records: Vec<WorkRecord>,
    call_of: impl Fn(u32) -> Option<ApiCallId>,
    asked: &[Timestamp],
) {
    records.sort_by_key(|work| (work.device, work.context, work.stream, work.start));
    let mut rows: Vec<(Stream, Vec<WorkData>)> = Vec::new();
    let mut first_row = 0;
    let mut free = FreeRows::default();
    for record in records {
        let WorkRecord { detail, device, context, stream, start, end, correlation, graph } = record;
        let device = DeviceId::new(device);
        let same = |row: &Stream| (row.device, row.context, row.number) == (device, context, stream);
        if rows.last().is_none_or(|(row, ..)| !same(row)) {
            first_row = rows.len();
            free = FreeRows::default();
        }
        // No viewer draws work that overlaps on one row.
        let overlap = free.place(start, end);
        if first_row + overlap == rows.len() {
            let overlap = u32::try_from(overlap).unwrap_or(u32::MAX);
            rows.push((Stream { device, context, number: stream, overlap }, Vec::new()));
        }
        let call = call_of(correlation);
        let owner = call.map(|id| &trace.api_calls[id.index()]);
        rows[first_row + overlap].1.push(WorkData {
            detail,
            stream: StreamId::new(first_row + overlap),
            start,
            end,
            correlation,
            graph,
            call,
            attribution: owner.map_or(Attribution::Unattributed, |call| call.attribution),
            span: owner.and_then(|call| call.span),
            step: step_at(trace, call.map_or(start, |id| asked[id.index()])),
        });
    }
    trace.streams = rows.iter().map(|(stream, ..)| *stream).collect();
    trace.work = rows.into_iter().flat_map(|(_, work)| work).collect();
}

/// The rows of one stream: which of them are free.
#[derive(Debug, Default)]
struct FreeRows {
    /// Until when each row is taken that was not free when last looked at, the first that is free again on top.
    taken: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The lowest on top.
    free: BinaryHeap<Reverse<usize>>,
}

impl FreeRows {
    /// Takes the lowest row that is free at `start`, a new one if there is none. Work comes in the order of its starts.
    fn place(&mut self, start: Timestamp, end: Timestamp) -> usize {
        while let Some(Reverse((_, row))) = self.taken.peek().filter(|Reverse((until, _))| *until <= start) {
            self.free.push(Reverse(*row));
            self.taken.pop();
        }
        let row = self.free.pop().map_or(self.taken.len(), |Reverse(row)| row);
        self.taken.push(Reverse((end, row)));
        row
    }
}

fn step_at(trace: &Trace, at: Timestamp) -> Option<StepId> {
    let after = trace.steps.partition_point(|step| step.start <= at);
    after.checked_sub(1).filter(|&step| at < trace.steps[step].end).map(StepId::new)
}

fn wait_data(
    trace: &Trace,
    record: WaitRecord,
    contexts: &HashMap<u32, u32>,
    call_of: impl Fn(u32) -> Option<ApiCallId>,
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
fn count_memory(trace: &mut Trace, contexts: &HashMap<u32, u32>, in_use: &HashMap<u32, u64>) {
    trace.allocations.sort_by_key(|allocation| allocation.at);
    let mut in_use = in_use.clone();
    let mut sizes: HashMap<(u32, u64), u64> = HashMap::new();
    for allocation in &mut trace.allocations {
        let device = contexts.get(&allocation.context).copied().unwrap_or(0);
        allocation.device = DeviceId::new(device);
        let used = in_use.entry(device).or_default();
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
        allocation.in_use = *used;
    }
}

#[cfg(test)]
mod tests {
    use super::FreeRows;
    use crate::trace::Timestamp;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn work_is_on_the_lowest_row_that_is_free(
            mut work in prop::collection::vec((0_u64..40, 0_u64..20), 0..60),
        ) {
            work.sort_unstable();
            let mut rows = FreeRows::default();
            let mut until: Vec<u64> = Vec::new();
            for (start, length) in work {
                let end = start + length;
                let row = rows.place(Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
                let expected = until.iter().position(|&until| until <= start).unwrap_or(until.len());
                prop_assert_eq!(row, expected);
                until.resize(until.len().max(row + 1), 0);
                until[row] = end;
            }
        }
    }
}
