//! Makes a [`Trace`] of what has been read of a document.

use super::{gpu::GpuEvents, host::HostEvents, intake::Intake};
use crate::{
    correlate::{innermost_spans, join_gpu, place_spans},
    recording::GpuRecording,
    trace::{Attribution, Batches, SpanData, SpanId, Step, StepId, Timestamp, Trace, TrackId, enclosing},
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, sync::Arc};

impl Intake<'_> {
    /// Makes the trace.
    pub(super) fn into_trace(self) -> Trace {
        let Self { header, rows, mut callsites, mut host, mut gpu, extent, unread, .. } = self;
        let is_ours = header.is_ours();
        let process = rows.process();
        let (tracks, track_of) = rows.into_tracks(is_ours);
        add_base(&mut host, &mut gpu, header.base(), &track_of);
        host.link_enters();
        header.complete(&mut callsites.table);
        let mut losses = header.losses();
        losses.unread += unread;
        let mut trace = Trace {
            window: header.window(),
            metadata: Arc::new(header.metadata(process)),
            losses,
            filtered: header.filtered(),
            steps: std::mem::take(&mut host.steps),
            tracks,
            counters: host.take_counters(),
            callsites: callsites.table,
            fields: callsites.fields,
            events: std::mem::take(&mut host.events),
            ..Trace::default()
        };
        trace.steps.sort_by_key(|step| step.start);
        let spans = add_spans(&mut trace, &mut host, is_ours);
        (trace.start, trace.end) = header.extent().map_or_else(
            || window(&trace, &gpu, extent, header.base()),
            |(start, end)| (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end)),
        );
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
        add_memory(&mut trace, gpu, &spans);
        trace
    }
}

/// The spans of a trace, by the ids that the document gives them.
struct SpanIds {
    /// Whether the id of each span is its index, counted from 1.
    in_order: bool,
    count: usize,
    by_id: FxHashMap<u64, SpanId>,
}

impl SpanIds {
    fn get(&self, id: u64) -> Option<SpanId> {
        match self.in_order {
            true => usize::try_from(id).ok()?.checked_sub(1).filter(|&index| index < self.count).map(SpanId::new),
            false => self.by_id.get(&id).copied(),
        }
    }
}

/// Adds the base to all times, and turns rows into tracks.
fn add_base(host: &mut HostEvents<'_>, gpu: &mut GpuEvents<'_>, base: u64, tracks: &[TrackId]) {
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
fn add_spans(trace: &mut Trace, host: &mut HostEvents<'_>, is_ours: bool) -> SpanIds {
    let mut spans = std::mem::take(&mut host.spans);
    let count = spans.len();
    let in_order = is_ours && host.ids.iter().zip(1..).all(|(&id, index)| id == index);
    if !in_order {
        sort_spans(&mut spans, host);
    }
    let by_id = match in_order {
        true => FxHashMap::default(),
        // Torch's annotations may share an id. The last span with it is the innermost.
        false => host.ids.iter().zip(0..).filter(|(id, _)| **id > 0).map(|(&id, at)| (id, SpanId::new(at))).collect(),
    };
    let ids = SpanIds { in_order, count, by_id };
    for (index, parent) in enclosing(&spans).into_iter().enumerate() {
        spans[index].parent = parent;
    }
    for (span, parent) in std::mem::take(&mut host.parents) {
        // A parent comes before its children.
        spans[span.index()].parent = parent.and_then(|parent| ids.get(parent)).filter(|parent| *parent < span);
    }
    trace.spans = spans;
    place_spans(trace, is_ours);
    for index in 0..trace.spans.len() {
        trace.spans[index].step = trace.step_at(trace.spans[index].start);
    }
    let callers = std::mem::take(&mut host.callers).into_iter();
    trace.callers = callers.map(|(span, caller)| (span, caller.and_then(|caller| ids.get(caller)))).collect();
    // Only a file that was tampered with has circles.
    if trace.caller_order().is_none() {
        trace.losses.unread += trace.callers.len() as u64;
        trace.callers.clear();
    }
    trace.backtraces = std::mem::take(&mut host.backtraces).into_iter().collect();
    let moments: Vec<_> = trace.events.iter().map(|event| (event.track, event.at)).collect();
    for (event, span) in innermost_spans(trace, &moments).into_iter().enumerate() {
        trace.events[event].span = span;
    }
    ids
}

/// Puts spans in the order in which they were entered, thread by thread, and all that names them by their indices.
fn sort_spans(spans: &mut Vec<SpanData>, host: &mut HostEvents<'_>) {
    let mut order: Vec<_> = (0..spans.len()).collect();
    order.sort_by_key(|&span| (spans[span].track, spans[span].start, Reverse(spans[span].end)));
    let mut moved = vec![SpanId::new(0); spans.len()];
    order.iter().enumerate().for_each(|(to, &from)| moved[from] = SpanId::new(to));
    let mut sorted: Vec<_> = order.iter().map(|&span| spans[span].clone()).collect();
    for span in &mut sorted {
        span.previous = span.previous.map(|previous| moved[previous.index()]);
    }
    *spans = sorted;
    host.ids = order.iter().map(|&span| host.ids[span]).collect();
    host.backtraces.iter_mut().for_each(|(span, _)| *span = moved[span.index()]);
    host.parents.iter_mut().chain(&mut host.callers).for_each(|(span, _)| *span = moved[span.index()]);
}

/// Returns when the window opened and closed, by what is in it.
fn window(
    trace: &Trace,
    gpu: &GpuEvents<'_>,
    said: Option<(Timestamp, Timestamp)>,
    base: u64,
) -> (Timestamp, Timestamp) {
    let spans = trace.spans.iter().map(|span| (span.start, span.end));
    let steps = trace.steps.iter().map(|step| (step.start, step.end));
    let calls = gpu.calls.iter().map(|call| (call.start, call.end));
    let at = |at: Timestamp| Timestamp::from_unix_nanos(at.as_unix_nanos().saturating_add(base));
    let said = said.map(|(start, end)| (at(start), at(end)));
    let all = spans.chain(steps).chain(calls).chain(said);
    all.reduce(|(start, end), (from, to)| (start.min(from), end.max(to))).unwrap_or_default()
}

fn add_operations(trace: &mut Trace, host: &mut HostEvents<'_>, spans: &SpanIds) {
    trace.operations = std::mem::take(&mut host.operations);
    trace.operation_calls = std::mem::take(&mut host.operation_calls);
    for (index, (span, step)) in host.operation_links.iter().enumerate() {
        let step = match step {
            Some(number) => step_with(&trace.steps, *number),
            None => trace.step_at(trace.operation_calls[index].at),
        };
        let call = &mut trace.operation_calls[index];
        (call.span, call.step) = (spans.get(*span), step);
    }
}

/// Returns the step with this number.
fn step_with(steps: &[Step], number: Option<u64>) -> Option<StepId> {
    steps.iter().position(|step| Some(step.number()) == number).map(StepId::new)
}

/// Adds the calls, with their spans: those that the document names, or else the innermost ones.
fn add_calls(trace: &mut Trace, gpu: &mut GpuEvents<'_>, spans: &SpanIds) {
    let mut calls = std::mem::take(&mut gpu.calls);
    for (call, &id) in calls.iter_mut().zip(&gpu.call_ids) {
        call.span = spans.get(id);
    }
    calls.sort_by_key(|call| (call.track, call.start));
    if !spans.in_order {
        let moments: Vec<_> = calls.iter().map(|call| (call.track, call.start)).collect();
        for (call, span) in calls.iter_mut().zip(innermost_spans(trace, &moments)) {
            call.span = call.span.or(span);
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

/// Gives work the span that the document names if its call is not there, and its step if that is not its call's.
fn mend_work(trace: &mut Trace, gpu: &GpuEvents<'_>, spans: &SpanIds) {
    for work in &mut trace.work {
        if work.call.is_none()
            && let Some(span) = gpu.work_ids.get(&work.correlation).and_then(|&id| spans.get(id))
        {
            (work.span, work.attribution) = (Some(span), Attribution::Direct);
        }
        if let Some(number) = gpu.work_steps.get(&work.correlation) {
            work.step = step_with(&trace.steps, *number);
        }
    }
}

fn add_memory(trace: &mut Trace, gpu: GpuEvents<'_>, spans: &SpanIds) {
    let mut allocations = gpu.allocations;
    for (allocation, &id) in allocations.iter_mut().zip(&gpu.allocation_ids) {
        allocation.span = spans.get(id);
    }
    if !spans.in_order {
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
    trace.host_allocations = gpu.host_allocations;
    trace.gpu_annotations = gpu.annotations;
}
