//! Makes a [`Trace`] of a [`Recording`], by pure functions.
//!
//! - [`threads`] turns each thread's records into spans, events, API calls and operations;
//! - [`enters`] joins the enters of a span that belong to one call, and finds the callers of spans;
//! - [`nest`] puts spans that overlap without nesting on tracks of their own, and computes self times;
//! - [`stacks`] joins sampled stacks to spans, and [`pools`] those of pools' threads to the spans that wait for them;
//! - [`gpu`] joins GPU work to the API calls that caused it, and [`streams`] assigns the rows that it is drawn on;
//! - [`correlate`] puts the whole together.

mod backtrace;
mod enters;
mod fields;
mod gpu;
mod nest;
mod pools;
mod stacks;
mod streams;
mod tables;
mod thread_state;
mod threads;

#[cfg(feature = "read")]
pub(crate) use self::nest::{innermost_spans, place_spans};
pub(crate) use self::{gpu::join_gpu, stacks::join_stacks};

use self::{
    nest::{Query, innermost},
    tables::{Callsites, Operations},
    threads::Threads,
};
use crate::{
    clock::{Ticks, Timeline},
    cpu_time::{THREAD_COUNTER, ThreadUsage},
    heap::HeapSample,
    recording::{Recording, level_of},
    trace::{HeapSampleData, Level, Metadata, Step, StepId, Trace, Track, TrackId},
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Makes a trace of a recording.
pub(crate) fn correlate(recording: Recording, metadata: Arc<Metadata>) -> Trace {
    let Recording { window, timeline, mut threads, mut losses, gpu: gpu_recording, thread_usage } = recording;
    losses.over_memory += window.lost_steps;
    let (start, end) = (window.open.unix, timeline.at(window.close.ticks));
    // The main thread comes first, since its id is the lowest. The sort is stable: a thread that has the id of an
    // earlier thread comes after that.
    threads.sort_by_key(|thread| thread.thread.id);

    let filtered = window.levels.into_level().map(level_of).filter(|level| *level > Level::Trace);
    let mut trace = Trace { window: window.index, start, end, metadata, losses, filtered, ..Trace::default() };
    trace.heap = window.heap.is_some().then(FxHashMap::default);
    let after = |ticks| timeline.at(Ticks(window.open.ticks.0.saturating_add(ticks)));
    trace.unrecorded_step = window.unrecorded_step.map(|ticks| after(ticks).since(timeline.at(window.open.ticks)));
    let (mut callsites, mut operations) = (Callsites::default(), Operations::default());
    let extent = window.open.ticks..=window.close.ticks;
    let functions = &gpu_recording.functions;
    let (mut origins, enters) =
        Threads::new(&mut trace, &mut callsites, &timeline, extent, functions, &mut operations).add(threads);
    trace.callsites = callsites.into_table();
    let (events, counters, lost_values) = fields::extract_counters(std::mem::take(&mut trace.events), &trace);
    (trace.events, trace.counters) = (events, counters);
    trace.losses.counters += lost_values;
    trace.losses.truncated += trace.fields.iter().filter(|field| field.value.is_truncated()).count() as u64;

    trace.steps.reserve_exact(window.steps.len());
    let mut usage = Vec::new();
    for mark in window.steps {
        let track = trace.tracks.iter().position(|track| track.thread == mark.thread.id && track.overlap == 0);
        let track = TrackId::new(track.unwrap_or_else(|| {
            trace.tracks.push(Track { thread: mark.thread.id, name: mark.thread.name.clone(), overlap: 0 });
            trace.tracks.len() - 1
        }));
        let start = timeline.at(mark.start);
        let end = timeline.at(mark.end).max(start);
        trace.steps.push(Step { number: mark.number, track, start, end, cut: mark.cut });
        let counters = mark.usage.map(|usage| usage.counters(end.since(start)));
        let named = |(name, value): (&str, f64)| (name.to_owned(), value);
        usage.extend(counters.map(|counters| (start, counters.into_iter().map(named).collect::<Vec<_>>())));
    }
    let of_thread = |used: ThreadUsage| (format!("{THREAD_COUNTER}{}", used.name), used.percent);
    usage.push((trace.start, thread_usage.into_iter().map(of_thread).collect()));
    fields::add_counters(&mut trace.counters, usage);
    if let Some(heap) = window.heap {
        trace.losses.over_memory += heap.lost;
        trace.losses.unreachable += heap.missed;
        trace.heap_samples = heap_samples(&mut trace, &heap.samples, &timeline);
    }
    for span in &mut trace.spans {
        let after = trace.steps.partition_point(|step| step.start <= span.start);
        span.step = after.checked_sub(1).filter(|&step| span.start < trace.steps[step].end).map(StepId::new);
    }
    // The time between the last call of `step` and the end of the window is a step only if a span began in it, an API
    // call was made or an operation was reported.
    let last = trace.steps.len().wrapping_sub(1);
    let started = trace.steps.last().map_or(trace.end, |step| step.start);
    if trace.steps.last().is_some_and(|step| step.cut.end)
        && trace.spans.iter().all(|span| span.step != Some(StepId::new(last)))
        && trace.api_calls.iter().all(|call| call.start < started)
        && trace.operation_calls.iter().all(|operation| operation.at < started)
    {
        trace.steps.pop();
    }
    enters.link(&mut trace, window.steps_by_close);
    let requested = gpu::hand_over(&mut trace, &origins, &timeline, window.open.ticks);
    operations.add_to(&mut trace);
    join_gpu(&mut trace, gpu_recording, requested);
    gpu::join_collectives(&mut trace, std::mem::take(&mut origins.collectives));
    trace
}

/// Gives each sampled allocation the span that was innermost on its thread.
fn heap_samples(trace: &mut Trace, samples: &[HeapSample], timeline: &Timeline) -> Vec<HeapSampleData> {
    let query = |sample: &HeapSample| Query { thread: sample.thread, at: timeline.at(sample.at), answer: None };
    let mut queries: Vec<_> = samples.iter().map(query).collect();
    innermost(trace, &mut queries);
    let freed = |sample: &HeapSample| sample.freed.map(|ticks| timeline.at(ticks));
    // Each stack and each line is there once.
    let (mut stacks, mut lines) = (FxHashMap::default(), FxHashMap::default());
    let mut line = |sample: &HeapSample| {
        let stack = sample.stack.as_ref()?;
        *stacks.entry(Arc::as_ptr(stack)).or_insert_with(|| {
            let line = backtrace::allocating_line(stack)?;
            let next = lines.len();
            Some(*lines.entry(line).or_insert(next))
        })
    };
    let data = |(sample, query): (&HeapSample, Query)| HeapSampleData {
        at: query.at,
        freed: freed(sample),
        bytes: sample.bytes,
        size: sample.size,
        line: line(sample),
        span: query.answer,
    };
    let data = samples.iter().zip(queries).map(data).collect();
    let mut lines: Vec<_> = lines.into_iter().collect();
    lines.sort_unstable_by_key(|(_, index)| *index);
    trace.heap_lines = lines.into_iter().map(|(line, _)| line).collect();
    data
}

#[cfg(test)]
mod tests {
    use super::{correlate, join_gpu};
    use crate::{
        clock::{Anchor, Clock, Ticks},
        recording::{ClosedWindow, DeviceCall, GpuRecording, Record, Recording, ThreadRecords, WorkRecord},
        thread::ThreadInfo,
        trace::{Collective, Detail, GpuCounters, Kernel, Losses, Metadata, ThreadId, Timestamp, Trace},
    };
    use std::{sync::Arc, time::Instant};
    use tracing::level_filters::LevelFilter;

    fn launch(correlation: u32) -> Record {
        let at = u64::from(correlation) * 100;
        Record::Call(DeviceCall::new(Ticks(at), Ticks(at + 32), correlation, 1, 307, 0))
    }

    fn collective(at: u64, sequence: u64) -> Record {
        let collective = Collective {
            operation: "allreduce".to_owned(),
            sequence: Some(sequence),
            elements_in: 10 + sequence,
            elements_out: 10,
            dtype: "ncclFloat32".to_owned(),
            ..Collective::default()
        };
        Record::Collective { at: Ticks(at), collective: Arc::new(collective) }
    }

    /// The trace of threads that wrote these records, and of kernels with these correlation ids.
    fn trace(threads: Vec<Vec<Record>>, kernels: &[(u32, &str)]) -> Trace {
        let [open, close] = [1, 10_000].map(|at| Anchor { ticks: Ticks(at), unix: Timestamp::from_unix_nanos(at) });
        let window = ClosedWindow {
            index: 0,
            open,
            close,
            levels: LevelFilter::TRACE,
            closed: Instant::now(),
            steps: Vec::new(),
            steps_by_close: false,
            lost_steps: 0,
            unrecorded_step: None,
            heap: None,
            stacks: None,
            charged: 0,
            followed: false,
            leftover: false,
            ticket: None,
            kept: None,
            with_gpu: true,
        };
        let kernel = |&(correlation, name): &(u32, &str)| WorkRecord {
            detail: Detail::Kernel(Kernel { name: name.into(), ..Kernel::default() }),
            device: 0,
            context: 1,
            stream: correlation,
            start: Timestamp::from_unix_nanos(5_000),
            end: Timestamp::from_unix_nanos(6_000),
            correlation,
            graph: None,
        };
        let gpu = GpuRecording { work: kernels.iter().map(kernel).collect(), ..GpuRecording::default() };
        let thread = |(id, records): (usize, Vec<Record>)| {
            let thread = ThreadInfo { id: ThreadId::new(id as u64), name: "main".to_owned() };
            ThreadRecords { thread, chunks: vec![records], charged: 0 }
        };
        let threads = threads.into_iter().enumerate().map(thread).collect();
        let timeline = Clock::mock().timeline(&[open, close]);
        let recording =
            Recording { window, timeline, threads, losses: Losses::default(), gpu, thread_usage: Vec::new() };
        correlate(recording, Arc::new(Metadata::default()))
    }

    #[test]
    fn lost_samples_of_all_gpus_are_losses_of_the_trace() {
        let mut trace = Trace::default();
        let counters = [2, 5].map(|lost| GpuCounters { lost, ..GpuCounters::default() }).into();
        join_gpu(&mut trace, GpuRecording { counters, ..GpuRecording::default() }, Vec::new());
        assert_eq!(trace.losses(), &Losses { gpu_counter_samples: 7, ..Losses::default() });
    }

    #[test]
    fn collectives_belong_to_the_kernel_that_their_thread_launched_last() {
        let first = vec![
            // Its launch was made before the window.
            collective(50, 4),
            launch(1),
            collective(150, 5),
            // Two of a group call share a kernel.
            launch(2),
            collective(250, 6),
            collective(260, 7),
            // The launch of the right kernel was lost.
            launch(3),
            collective(350, 8),
            // This one is after the window.
            launch(4),
            collective(10_001, 9),
        ];
        let second = vec![launch(5), collective(170, 20)];
        let nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
        let kernels = [(1, nccl), (2, nccl), (3, "gemm"), (4, nccl), (5, nccl), (6, nccl)];
        let trace = trace(vec![first, second], &kernels);
        let found = trace.work().map(|work| {
            let collective = work.collective();
            (
                work.correlation(),
                collective.map(|it| (it.sequence.unwrap(), it.merged, it.elements_in, it.elements_out)),
            )
        });
        let expected = [
            (1, Some((5, 0, 15, 10))),
            (2, Some((6, 1, 33, 20))),
            (3, None),
            (4, None),
            (5, Some((20, 0, 30, 10))),
            (6, None),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
