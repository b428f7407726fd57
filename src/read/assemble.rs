//! Builds a [`Trace`] from what has been read of a document.

use super::{
    callsites::Callsites, counters, gpu::GpuEvents, host::HostEvents, intake::Intake, samples, span_ids::SpanIds,
};
use crate::{
    correlate::{innermost_spans, join_gpu, place_spans},
    gallop_search::GallopSearch,
    recording::GpuRecording,
    trace::{
        ApiCallData, Attribution, Batches, GpuAnnotation, Mark, SpanData, SpanId, Step, StepId, StreamId, Timestamp,
        Torch, Trace, TrackId, WorkData, WorkId, enclosing,
    },
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};

impl Intake {
    /// Builds the trace.
    pub(super) fn into_trace(self) -> Trace {
        let Self { header, mut rows, callsites, mut host, mut gpu, mut marks, unread, .. } = self;
        let Callsites { table: mut callsites, mut fields, .. } = callsites;
        let is_ours = header.is_ours();
        let (process, process_name) = (rows.process(), rows.process_name());
        let (processes, row_names) = rows.names();
        let (tracks, track_of) = rows.into_tracks(&header);
        add_base(&mut host, &mut gpu, &mut marks, header.base(), &track_of);
        host.link_enters();
        let (links, lost_link_ends) = host.take_links();
        // The category of torch's events gives the target.
        if !header.is_torch() {
            header.complete(&mut callsites);
        }
        fields.shrink_to_fit();
        let mut losses = header.losses();
        losses.unread += unread;
        let mut trace = Trace {
            window: header.window(),
            metadata: Arc::new(header.metadata(process, process_name)),
            losses,
            filtered: header.filtered(),
            unrecorded_step: header.unrecorded_step(),
            steps: std::mem::take(&mut host.steps),
            tracks,
            counters: host.take_counters(),
            callsites,
            fields,
            events: std::mem::take(&mut host.events),
            ..Trace::default()
        };
        trace.steps.sort_by_key(|step| step.start);
        let mut torch = Torch { links, marks, processes, rows: row_names, ..Torch::default() };
        let spans = add_spans(&mut trace, &mut host, &mut torch.links, is_ours);
        (trace.start, trace.end) = header.extent().map_or_else(
            || window(&trace, &gpu, &torch.marks),
            |(start, end)| (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end)),
        );
        samples::add_samples(&mut trace, &header, &spans);
        counters::add_counters(&mut trace, &header);
        add_operations(&mut trace, &mut host, &spans);
        gpu.set_batches(|batch| host.batches.id(batch));
        trace.batches = Batches::new(&host.batches, &trace.operation_calls, trace.spans.len());
        add_calls(&mut trace, &mut gpu, &spans);
        let recording = GpuRecording {
            gpu: header.gpu(!gpu.work.is_empty()),
            devices: header.devices().into(),
            work: std::mem::take(&mut gpu.work),
            waits: std::mem::take(&mut gpu.waits),
            overheads: std::mem::take(&mut gpu.overheads),
            contexts: std::mem::take(&mut gpu.contexts),
            ..GpuRecording::default()
        };
        let requested = trace.api_calls.iter().map(|call| call.start).collect();
        join_gpu(&mut trace, recording, requested);
        mend_work(&mut trace, &gpu, &spans);
        if header.is_torch() {
            trace.losses.unread += add_annotations(&trace, &mut gpu, &spans, &mut torch);
            torch.host_allocations = std::mem::take(&mut gpu.host_allocations);
            torch.host_allocations.shrink_to_fit();
            torch.host_allocations.sort_by_key(|allocation| allocation.at);
            if !is_ours {
                torch.left_out = left_out(&trace, &host, lost_link_ends, gpu.arrow_ends);
            }
            trace.torch = Some(Box::new(torch));
        }
        add_memory(&mut trace, gpu, &spans);
        trace
    }
}

/// Adds the base to all times, and turns rows into tracks.
fn add_base(host: &mut HostEvents, gpu: &mut GpuEvents, marks: &mut [Mark], base: u64, tracks: &[TrackId]) {
    let shift = |at: &mut Timestamp| *at = Timestamp::from_unix_nanos(at.as_unix_nanos().saturating_add(base));
    let place = |track: &mut TrackId| *track = tracks[track.index()];
    for span in &mut host.spans {
        shift(&mut span.start);
        shift(&mut span.end);
        place(&mut span.track);
    }
    for step in &mut host.steps {
        shift(&mut step.start);
        shift(&mut step.end);
        place(&mut step.track);
    }
    for event in &mut host.events {
        shift(&mut event.at);
        place(&mut event.track);
    }
    for call in &mut host.operation_calls {
        shift(&mut call.at);
        place(&mut call.track);
    }
    host.counters_mut().for_each(shift);
    for call in &mut gpu.calls {
        shift(&mut call.start);
        shift(&mut call.end);
        place(&mut call.track);
    }
    for work in &mut gpu.work {
        shift(&mut work.start);
        shift(&mut work.end);
        if let crate::trace::Detail::Kernel(kernel) = &mut work.detail {
            kernel.queued.iter_mut().for_each(shift);
        }
    }
    gpu.waits.iter_mut().flat_map(|wait| [&mut wait.start, &mut wait.end]).for_each(shift);
    gpu.overheads.iter_mut().flat_map(|overhead| [&mut overhead.start, &mut overhead.end]).for_each(shift);
    gpu.annotations.iter_mut().flat_map(|it| [&mut it.start, &mut it.end]).for_each(shift);
    marks.iter_mut().flat_map(|mark| [Some(&mut mark.start), mark.end.as_mut()]).flatten().for_each(shift);
    for allocation in &mut gpu.allocations {
        shift(&mut allocation.at);
        place(&mut allocation.track);
    }
    for allocation in &mut gpu.host_allocations {
        shift(&mut allocation.at);
        place(&mut allocation.track);
    }
}

/// Adds the spans, with their parents, self times and steps, and the events inside them.
fn add_spans(trace: &mut Trace, host: &mut HostEvents, links: &mut Vec<(SpanId, SpanId)>, is_ours: bool) -> SpanIds {
    let mut spans = std::mem::take(&mut host.spans);
    let ids = match SpanIds::in_order(&host.ids).filter(|_| is_ours) {
        Some(ids) => ids,
        None => sort_spans(&mut spans, host, links),
    };
    links.sort_unstable();
    links.dedup();
    host.ids = Vec::new();
    for (index, parent) in enclosing(&spans).into_iter().enumerate() {
        spans[index].parent = parent;
    }
    for (span, parent) in std::mem::take(&mut host.parents) {
        // A parent comes before its children.
        spans[span.index()].parent = parent.and_then(|parent| ids.get(parent)).filter(|parent| *parent < span);
    }
    trace.spans = spans;
    place_spans(trace, is_ours);
    let mut search = GallopSearch::default();
    for span in &mut trace.spans {
        let after = search.count_before(&trace.steps, |step| step.start <= span.start);
        span.step = after.checked_sub(1).filter(|&step| span.start < trace.steps[step].end).map(StepId::new);
    }
    let callers = std::mem::take(&mut host.callers).into_iter();
    trace.callers = callers.map(|(span, caller)| (span, caller.and_then(|caller| ids.get(caller)))).collect();
    // Only a file that was tampered with has cycles.
    if trace.caller_order().is_none() {
        trace.losses.unread += trace.callers.len() as u64;
        trace.callers.clear();
    }
    for (span, causes) in std::mem::take(&mut host.follows) {
        trace.follows.insert(span, causes.into_iter().filter_map(|cause| ids.get(cause)).collect());
    }
    trace.backtraces = std::mem::take(&mut host.backtraces).into_iter().collect();
    let heap = std::mem::take(&mut host.heap);
    trace.heap = (!heap.is_empty()).then(|| heap.into_iter().collect());
    trace.set_cpu_times(std::mem::take(&mut host.cpu_times).into_iter().collect());
    let moments: Vec<_> = trace.events.iter().map(|event| (event.track, event.at)).collect();
    for (event, span) in innermost_spans(trace, &moments).into_iter().enumerate() {
        trace.events[event].span = span;
    }
    ids
}

/// Sorts spans in the order in which they were entered, thread by thread, and updates everything that refers to them by
/// index. Returns the spans by id.
fn sort_spans(spans: &mut Vec<SpanData>, host: &mut HostEvents, links: &mut [(SpanId, SpanId)]) -> SpanIds {
    // Tracks first: the spans of a track are mostly sorted already.
    let tracks = spans.iter().map(|span| span.track.index() + 1).max().unwrap_or(0);
    let mut starts = vec![0; tracks + 1];
    spans.iter().for_each(|span| starts[span.track.index() + 1] += 1);
    (0..tracks).for_each(|track| starts[track + 1] += starts[track]);
    let mut order = vec![SpanId::new(0); spans.len()];
    let mut next = starts.clone();
    for (index, span) in spans.iter().enumerate() {
        let place = &mut next[span.track.index()];
        order[*place] = SpanId::new(index);
        *place += 1;
    }
    for track in starts.windows(2) {
        order[track[0]..track[1]].sort_by_key(|span| (spans[span.index()].start, Reverse(spans[span.index()].end)));
    }
    let mut moved = vec![SpanId::new(0); spans.len()];
    order.iter().enumerate().for_each(|(to, from)| moved[from.index()] = SpanId::new(to));
    for span in &mut *spans {
        span.previous = span.previous.map(|previous| moved[previous.index()]);
    }
    host.backtraces.iter_mut().for_each(|(span, _)| *span = moved[span.index()]);
    host.heap.iter_mut().for_each(|(span, _)| *span = moved[span.index()]);
    host.cpu_times.iter_mut().for_each(|(span, _)| *span = moved[span.index()]);
    links.iter_mut().for_each(|(from, to)| (*from, *to) = (moved[from.index()], moved[to.index()]));
    host.parents.iter_mut().chain(&mut host.callers).for_each(|(span, _)| *span = moved[span.index()]);
    let ids = SpanIds::of(&host.ids, &moved);
    // Not in place: that would jump across the list for each span, whereas this reads and writes sequentially, thread
    // by thread. A report takes more memory later.
    *spans = order.into_iter().map(|from| spans[from.index()].clone()).collect();
    ids
}

/// Returns when the window opened and closed, based on its content.
fn window(trace: &Trace, gpu: &GpuEvents, marks: &[Mark]) -> (Timestamp, Timestamp) {
    let spans = trace.spans.iter().map(|span| (span.start, span.end));
    let steps = trace.steps.iter().map(|step| (step.start, step.end));
    let calls = gpu.calls.iter().map(|call| (call.start, call.end));
    let said = marks.iter().find_map(|mark| Some((mark.start, mark.end?)));
    let all = spans.chain(steps).chain(calls).chain(said);
    all.reduce(|(start, end), (from, to)| (start.min(from), end.max(to))).unwrap_or_default()
}

fn add_operations(trace: &mut Trace, host: &mut HostEvents, spans: &SpanIds) {
    trace.operations = std::mem::take(&mut host.operations);
    trace.operation_calls = std::mem::take(&mut host.operation_calls);
    let steps = steps_by_number(&trace.steps);
    for (index, (span, step)) in host.operation_links.iter().enumerate() {
        let step = match step {
            Some(number) => number.and_then(|number| steps.get(&number).copied()),
            None => trace.step_at(trace.operation_calls[index].at),
        };
        let call = &mut trace.operation_calls[index];
        (call.span, call.step) = (spans.get(*span), step);
    }
}

/// Returns the first step with each number.
fn steps_by_number(steps: &[Step]) -> FxHashMap<u64, StepId> {
    steps.iter().enumerate().rev().map(|(index, step)| (step.number(), StepId::new(index))).collect()
}

/// Adds the calls, with their spans: those that the document names, or else the innermost ones.
fn add_calls(trace: &mut Trace, gpu: &mut GpuEvents, spans: &SpanIds) {
    let mut calls = std::mem::take(&mut gpu.calls);
    calls.shrink_to_fit();
    for (call, id) in calls.iter_mut().zip(std::mem::take(&mut gpu.call_ids)) {
        call.span = spans.get(id);
    }
    calls.sort_by_key(|call| (call.track, call.start));
    if !spans.is_in_order() {
        let unnamed = |call: &&mut ApiCallData| call.span.is_none();
        let moments: Vec<_> = calls.iter_mut().filter(unnamed).map(|call| (call.track, call.start)).collect();
        for (call, span) in calls.iter_mut().filter(unnamed).zip(innermost_spans(trace, &moments)) {
            call.span = span;
        }
    }
    for call in &mut calls {
        match call.attribution {
            Attribution::Unattributed if call.span.is_some() => call.attribution = Attribution::Direct,
            Attribution::Direct | Attribution::HandedOff if call.span.is_none() => {
                call.attribution = Attribution::Unattributed;
            }
            _ => {}
        }
    }
    trace.api_calls = calls;
}

/// Gives work the span that the document names if its call is missing, and its step if that is not its call's.
fn mend_work(trace: &mut Trace, gpu: &GpuEvents, spans: &SpanIds) {
    let steps = steps_by_number(&trace.steps);
    let without_call = trace.work.iter().filter(|work| work.call.is_none());
    let without_call: FxHashSet<_> = without_call.map(|work| work.correlation).collect();
    let ids = gpu.work_ids.iter().filter(|(correlation, _)| without_call.contains(correlation));
    let ids: FxHashMap<_, _> = ids.copied().collect();
    for work in &mut trace.work {
        if work.call.is_none()
            && let Some(span) = ids.get(&work.correlation).and_then(|&id| spans.get(id))
        {
            (work.span, work.attribution) = (Some(span), Attribution::Direct);
        }
        if let Some(number) = gpu.work_steps.get(&work.correlation) {
            work.step = number.and_then(|number| steps.get(&number).copied());
        }
    }
    let collective = |(index, work): (usize, &WorkData)| {
        Some((WorkId::new(index), Arc::clone(gpu.collectives.get(&work.correlation)?)))
    };
    trace.collectives = trace.work.iter().enumerate().filter_map(collective).collect();
}

fn add_memory(trace: &mut Trace, gpu: GpuEvents, spans: &SpanIds) {
    let mut allocations = gpu.allocations;
    allocations.shrink_to_fit();
    for (allocation, &id) in allocations.iter_mut().zip(&gpu.allocation_ids) {
        allocation.span = spans.get(id);
    }
    if !spans.is_in_order() {
        let moments: Vec<_> = allocations.iter().map(|allocation| (allocation.track, allocation.at)).collect();
        for (allocation, span) in allocations.iter_mut().zip(innermost_spans(trace, &moments)) {
            allocation.span = allocation.span.or(span);
            if allocation.span.is_some() && allocation.attribution == Attribution::Unattributed {
                allocation.attribution = Attribution::Direct;
            }
        }
    }
    allocations.sort_by_key(|allocation| allocation.at);
    trace.allocations = allocations;
}

/// Adds the labels on streams, with their spans. Returns the number of labels that are on no stream.
fn add_annotations(trace: &Trace, gpu: &mut GpuEvents, spans: &SpanIds, torch: &mut Torch) -> u64 {
    let mut streams: FxHashMap<(u32, u32), StreamId> = FxHashMap::default();
    for (index, stream) in trace.streams().iter().enumerate().filter(|(_, stream)| stream.overlap() == 0) {
        streams.entry((stream.device().as_u32(), stream.number())).or_insert(StreamId::new(index));
    }
    let annotations = std::mem::take(&mut gpu.annotations);
    let count = annotations.len();
    torch.gpu_annotations.extend(annotations.into_iter().filter_map(|it| {
        let stream = *streams.get(&(it.device, it.stream))?;
        Some(GpuAnnotation { name: it.name, start: it.start, end: it.end, stream, span: spans.get(it.id) })
    }));
    (count - torch.gpu_annotations.len()) as u64
}

/// Counts the parts of a PyTorch file that the trace does not contain.
fn left_out(trace: &Trace, host: &HostEvents, lost_link_ends: u64, arrow_ends: u64) -> BTreeMap<&'static str, u64> {
    // A call has one start of an arrow for all its work.
    let mut has_work = vec![false; trace.api_calls.len()];
    let calls = trace.work().filter_map(|work| work.call().filter(|call| call.start() <= work.start()));
    let kept =
        calls.fold(0, |kept, call| kept + 1 + u64::from(!std::mem::replace(&mut has_work[call.id().index()], true)));
    let ends = ("ends of arrows", arrow_ends.saturating_sub(kept) + lost_link_ends);
    host.passed_over().chain([ends]).filter(|&(_, count)| count > 0).collect()
}
