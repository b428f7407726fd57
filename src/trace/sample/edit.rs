//! Functions that modify a trace, whose fields are private to the crate. Spans and work are identified by index.

use super::{at, gpu_trace};
use crate::trace::{
    CallsiteId, Counter, DeviceId, EventData, FieldData, FieldRange, Gpu, GpuCounters, GpuMetric, GpuProblem, Level,
    Losses, MetricMeaning, SpanId, Step, Timestamp, Trace, TraceContext, Track, TrackId, Value, Work, convention,
};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// Sets the OpenTelemetry context of a span; `None` if it has none.
pub fn set_context(trace: &mut Trace, span: usize, context: Option<TraceContext>) {
    trace.contexts.insert(SpanId::new(span), context);
}

/// Sets the fields of the span with this index.
pub fn set_fields(trace: &mut Trace, span: usize, fields: &[(&'static str, impl Clone + Into<Value>)]) {
    let span = &mut trace.spans[span];
    let names = &mut trace.callsites[span.callsite.index()].fields;
    span.fields = FieldRange { start: trace.fields.len() as u32, len: fields.len() as u32 };
    for (name, value) in fields {
        let index = names.iter().position(|other| other == name).unwrap_or(names.len());
        if index == names.len() {
            names.push(Cow::Borrowed(*name));
        }
        trace.fields.push(FieldData { index: index as u32, value: value.clone().into() });
    }
}

/// Sets the fields of the span with this index to a number of floating-point operations and the element type of its
/// input.
pub fn set_flops(trace: &mut Trace, span: usize, flops: u64, dtype: &str) {
    let dtype = Value::Str(Arc::from(dtype));
    set_fields(trace, span, &[(convention::FLOPS, Value::U64(flops)), ("op.dtype.input", dtype)]);
}

/// Nests a span in another one.
pub fn set_parent(trace: &mut Trace, span: usize, parent: usize) {
    trace.spans[span].parent = Some(SpanId::new(parent));
}

/// Sets the caller of a span; `None` if it has none.
pub fn set_caller(trace: &mut Trace, span: usize, caller: Option<usize>) {
    trace.callers.insert(SpanId::new(span), caller.map(SpanId::new));
}

/// Sets the first enters of the calls that the call with this first enter follows from.
pub fn set_follows(trace: &mut Trace, span: usize, causes: &[usize]) {
    trace.follows.insert(SpanId::new(span), causes.iter().copied().map(SpanId::new).collect());
}

/// Puts a span on the track of a thread of this name.
pub fn set_track(trace: &mut Trace, span: usize, thread: &str) {
    let track = trace.tracks.iter().position(|track| track.name == thread).unwrap_or_else(|| {
        trace.tracks.push(Track { name: thread.to_owned(), ..trace.tracks[0].clone() });
        trace.tracks.len() - 1
    });
    trace.spans[span].track = TrackId::new(track);
}

/// Sets the start of a span.
pub fn set_start(trace: &mut Trace, span: usize, start: Timestamp) {
    trace.spans[span].start = start;
}

/// Sets the name of a callsite.
pub fn rename(trace: &mut Trace, callsite: usize, name: &'static str) {
    trace.callsites[callsite].name = Cow::Borrowed(name);
}

/// Makes an enter belong to the call of an earlier one.
pub fn set_previous(trace: &mut Trace, span: usize, previous: usize) {
    trace.spans[span].previous = Some(SpanId::new(previous));
}

/// Marks a span as open through the whole window.
pub fn cut_both_ends(trace: &mut Trace, span: usize) {
    let cut = &mut trace.spans[span].cut;
    (cut.start, cut.end) = (true, true);
}

/// Adds a counter with these values.
pub fn add_counter(trace: &mut Trace, name: &str, samples: &[(Timestamp, f64)]) {
    trace.counters.push(Counter { name: Arc::from(name), samples: samples.to_vec() });
}

/// Adds the hardware counters of a GPU: its metrics, and samples of so many microseconds from the start of the window
/// on, each with the values of all metrics.
pub fn add_gpu_counters(
    trace: &mut Trace,
    device: u32,
    metrics: &[(&str, MetricMeaning)],
    micros: u64,
    samples: &[&[f64]],
) {
    let metric = |&(name, meaning): &(&str, MetricMeaning)| GpuMetric { name: name.to_owned(), meaning };
    trace.gpu_counters.push(GpuCounters {
        device: DeviceId::new(device),
        interval: Duration::from_micros(micros),
        metrics: metrics.iter().map(metric).collect(),
        times: (0..samples.len() as u64).map(|sample| (at(sample * micros), at((sample + 1) * micros))).collect(),
        values: samples.concat(),
        ..GpuCounters::default()
    });
}

/// Adds the hardware counters of the first GPU as it would measure them, in samples of so many microseconds: each value
/// is the mean of those of the work in its time, and of `idle` for the rest.
pub fn measure_work<const METRICS: usize>(
    trace: &mut Trace,
    micros: u64,
    metrics: [MetricMeaning; METRICS],
    idle: [f64; METRICS],
    of_work: impl Fn(Work<'_>) -> [f64; METRICS],
) {
    let (first, nanos) = (trace.start().as_unix_nanos(), micros * 1000);
    let last = trace.work().map(Work::end).max().unwrap_or_default().as_unix_nanos();
    let sample = |start: u64| {
        let mut values = idle;
        for work in trace.work() {
            let end = work.end().as_unix_nanos().min(start + nanos);
            let share = end.saturating_sub(work.start().as_unix_nanos().max(start)) as f64 / nanos as f64;
            let more = of_work(work).into_iter().zip(idle).map(|(of_work, idle)| share * (of_work - idle));
            values.iter_mut().zip(more).for_each(|(value, more)| *value += more);
        }
        values
    };
    let samples: Vec<_> = (first..last).step_by(nanos as usize).map(sample).collect();
    let metrics = metrics.map(|meaning| (meaning.as_str(), meaning));
    add_gpu_counters(trace, 0, &metrics, micros, &samples.iter().map(<[f64; METRICS]>::as_slice).collect::<Vec<_>>());
}

/// Adds an event on the first thread, in a span or in none. Its callsite is like that of the first span.
pub fn add_event(
    trace: &mut Trace,
    span: Option<usize>,
    at: Timestamp,
    level: Level,
    fields: &[(&'static str, Value)],
) {
    let mut callsite = trace.callsites[0].clone();
    callsite.level = level;
    callsite.fields = fields.iter().map(|(name, _)| Cow::Borrowed(*name)).collect();
    trace.callsites.push(callsite);
    let range = FieldRange { start: trace.fields.len() as u32, len: fields.len() as u32 };
    let values = fields.iter().enumerate();
    trace.fields.extend(values.map(|(index, (_, value))| FieldData { index: index as u32, value: value.clone() }));
    trace.events.push(EventData {
        callsite: CallsiteId::new(trace.callsites.len() - 1),
        track: TrackId::new(0),
        span: span.map(SpanId::new),
        at,
        fields: range,
    });
}

/// Returns the losses for modification.
pub fn losses_mut(trace: &mut Trace) -> &mut Losses {
    &mut trace.losses
}

/// Adds copies of a piece of work, on its stream and at its time.
pub fn repeat_work(trace: &mut Trace, work: usize, times: usize) {
    let work = trace.work[work].clone();
    trace.work.extend(std::iter::repeat_n(work, times));
}

/// Removes the work for which `keep` returns false.
pub fn retain_work(trace: &mut Trace, keep: impl Fn(Work<'_>) -> bool) {
    let kept: Vec<_> = trace.work().map(keep).collect();
    let mut kept = kept.into_iter();
    trace.work.retain(|_| kept.next() == Some(true));
}

/// Sets the end of a piece of work.
pub fn set_work_end(trace: &mut Trace, work: usize, end: Timestamp) {
    trace.work[work].end = end;
}

/// Sets the moment at which a step begins and the one before it ends.
pub fn set_boundary(trace: &mut Trace, step: usize, at: Timestamp) {
    (trace.steps[step - 1].end, trace.steps[step].start) = (at, at);
}

/// Replaces the steps by consecutive ones of these durations in nanoseconds.
pub fn set_steps(trace: &mut Trace, nanos: &[u64]) {
    let (first, mut start) = (trace.steps[0], trace.start);
    trace.steps.clear();
    for (number, nanos) in (0..).zip(nanos) {
        let end = Timestamp::from_unix_nanos(start.as_unix_nanos() + nanos);
        trace.steps.push(Step { number, start, end, ..first });
        start = end;
    }
    trace.end = trace.end.max(start);
}

/// Removes all steps, as in a window without any.
pub fn remove_steps(trace: &mut Trace) {
    trace.steps.clear();
    trace.spans.iter_mut().for_each(|span| span.step = None);
    trace.work.iter_mut().for_each(|work| work.step = None);
}

/// Removes all GPU activity, as on a machine where GPUs cannot be recorded.
pub fn remove_gpu(trace: &mut Trace, problem: GpuProblem) {
    (trace.work, trace.waits, trace.api_calls, trace.allocations) = Default::default();
    (trace.devices, trace.streams) = Default::default();
    trace.gpu = Gpu::Unavailable(problem);
}

/// Returns the first step of the sample trace with this many copies of `train_step` in it and nothing else.
pub fn copies_trace(spans: usize) -> Trace {
    let mut trace = gpu_trace();
    trace.steps.truncate(1);
    trace.spans = vec![trace.spans[0].clone(); spans];
    trace.end = at(100);
    (trace.work, trace.waits, trace.api_calls, trace.allocations) = Default::default();
    trace
}
