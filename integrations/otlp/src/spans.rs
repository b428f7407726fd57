//! A window as spans: a root for each step, below it the spans of the program, and below these the work of GPUs.

#[cfg(test)]
mod tests;
mod work;

use crate::{
    attributes::{Attributes, name},
    gpu_totals::GpuTotals,
    options::GpuSpans,
    placement::{ParentSpan, Placements},
    run_trace::{RunTrace, StepTrace},
    span_writer::{ATTRIBUTES, DROPPED_EVENTS, DROPPED_LINKS, EVENTS, Head, SpanWriter, error, link},
};
use kernspan::{
    Trace,
    analysis::{Analysis, StepGpu, StepInterval},
    export::wire,
    trace::{Cut, Event, Level, Span, SpanId, Step, StepId, Timestamp, Value, Work, convention},
};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Duration};

/// The settings for turning a window into spans.
#[derive(Clone, Debug)]
pub(crate) struct SpanOptions {
    pub(crate) run: RunTrace,
    pub(crate) schedule: String,
    pub(crate) gpu: GpuSpans,
    /// How many spans of GPU work a trace may have.
    pub(crate) most_work: usize,
    pub(crate) samples_per_step: Option<u64>,
    /// The maximum length of an attribute's text, in bytes.
    pub(crate) text_limit: usize,
}

/// The maximum number of events sent per span, which is OpenTelemetry's default limit.
const MOST_EVENTS: usize = 128;

/// The maximum number of causes that a span is linked to, for the same reason.
const MOST_LINKS: usize = 128;

/// Writes the spans of a window. `dropped` is the number of spans lost earlier, which the steps report.
pub(crate) fn write(analysis: &Analysis<'_>, options: &SpanOptions, dropped: u64, writer: &mut SpanWriter<'_>) {
    let window = Window::new(analysis.trace(), analysis.step_intervals(), options);
    window.write_roots(analysis.gpu_steps(), dropped, writer);
    window.write_spans(writer);
    match options.gpu {
        GpuSpans::Kernels => window.write_work(writer),
        GpuSpans::Aggregate => window.write_gpu_totals(writer),
        GpuSpans::Off => {}
    }
}

/// A window, with the placements, GPU totals and events of its spans.
struct Window<'a> {
    trace: &'a Trace,
    /// The time of each whole step, by its number.
    step_times: BTreeMap<u64, Duration>,
    options: &'a SpanOptions,
    placements: Placements<'a>,
    gpu: Option<GpuTotals>,
    events: FxHashMap<Owner, Vec<Event<'a>>>,
}

/// The span that contains an event, or else the step, or else the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Span(SpanId),
    Step(StepId),
    Window,
}

impl<'a> Window<'a> {
    fn new(trace: &'a Trace, intervals: &[StepInterval], options: &'a SpanOptions) -> Self {
        let steps: Vec<(StepId, &Step)> = trace.step_ids().zip(trace.steps()).collect();
        let mut events: FxHashMap<Owner, Vec<Event<'a>>> = FxHashMap::default();
        for event in trace.events() {
            let in_step = || {
                let begun = steps.partition_point(|(_, step)| step.start() <= event.at());
                let last = steps[..begun].last().filter(|(_, step)| event.at() <= step.end());
                last.map_or(Owner::Window, |&(id, _)| Owner::Step(id))
            };
            let owner = event.span().map_or_else(in_step, |span| Owner::Span(span.id()));
            events.entry(owner).or_default().push(event);
        }
        let has_no_step = trace.spans().any(|span| span.step_id().is_none())
            || trace.work().any(|work| work.step_id().is_none())
            || events.contains_key(&Owner::Window);
        Self {
            trace,
            step_times: intervals.iter().map(|step| (step.step, step.time())).collect(),
            options,
            placements: Placements::new(trace, &options.run, has_no_step),
            gpu: (options.gpu != GpuSpans::Off).then(|| GpuTotals::of(trace)),
            events,
        }
    }

    fn write_roots(&self, gpu_steps: &[StepGpu], dropped: u64, writer: &mut SpanWriter<'_>) {
        let mut gpus: BTreeMap<u64, Vec<StepGpu>> = BTreeMap::new();
        gpu_steps.iter().for_each(|gpu| gpus.entry(gpu.step).or_default().push(*gpu));
        let mut unattributed = vec![0_u64; self.trace.steps().len()];
        for step in self.trace.work().filter(|work| work.span().is_none()).filter_map(Work::step_id) {
            unattributed[step.index()] += 1;
        }
        for (id, step) in self.trace.step_ids().zip(self.trace.steps()) {
            let Some(ids) = self.placements.step_trace(Some(id)) else { continue };
            let text = format!("step {}", step.number());
            let times = (step.start(), step.end());
            self.write_root(ids, &text, times, Owner::Step(id), writer, |attributes| {
                attributes.number(name::STEP, step.number()).text(name::PHASE, "record");
                write_cut(step.cut(), attributes);
                self.write_step(step, attributes);
                gpus.get(&step.number()).into_iter().flatten().for_each(|gpu| write_gpu(gpu, attributes));
                if unattributed[id.index()] > 0 {
                    attributes.number(name::UNATTRIBUTED, unattributed[id.index()]);
                }
                if dropped > 0 {
                    attributes.number(name::DROPPED, dropped);
                }
            });
        }
        if let Some(ids) = self.placements.step_trace(None) {
            let text = format!("window {}", self.trace.window());
            let times = (self.trace.start(), self.trace.end());
            self.write_root(ids, &text, times, Owner::Window, writer, |_| ());
        }
    }

    fn write_root(
        &self,
        ids: StepTrace,
        name: &str,
        (start, end): (Timestamp, Timestamp),
        owner: Owner,
        writer: &mut SpanWriter<'_>,
        more: impl FnOnce(&mut Attributes<'_>),
    ) {
        let run = &self.options.run;
        writer.span(Head { trace: ids.trace, id: ids.root, parent: None, name, start, end }, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.number(name::WINDOW, self.trace.window()).text(name::SCHEDULE, &self.options.schedule);
            attributes.number(name::RANK, self.trace.metadata().rank);
            more(&mut attributes);
            if !self.trace.gpu().is_available() {
                attributes.text(name::GPU, &self.trace.gpu().to_string());
            }
            attributes.number(name::LOST, self.trace.losses().total());
            for (cause, count) in self.trace.losses().causes().filter(|(_, count)| *count > 0) {
                attributes.number(&format!("{}.{cause}", name::LOST), count);
            }
            link(out, run.trace, run.span, "run");
            let step = if let Owner::Step(step) = owner { Some(step) } else { None };
            self.placements.links(step).iter().for_each(|&(trace, span)| link(out, trace, span, "trace"));
            self.write_events(owner, out);
        });
    }

    /// Writes the counters of a step, and the throughput.
    fn write_step(&self, step: &Step, attributes: &mut Attributes<'_>) {
        let mut samples = self.options.samples_per_step.map(|samples| samples as f64);
        for (counter, value) in self.trace.counters_in(step) {
            if counter == convention::SAMPLES {
                samples = Some(value);
            }
            attributes.float(&format!("{}{counter}", name::COUNTER), value);
        }
        let time = self.step_times.get(&step.number()).filter(|time| !time.is_zero());
        if let Some((samples, time)) = samples.zip(time) {
            attributes.float(name::RATE, samples / time.as_secs_f64());
        }
    }

    fn write_spans(&self, writer: &mut SpanWriter<'_>) {
        for span in self.trace.spans() {
            let Some((id, parent)) = self.placements.sent(span) else { continue };
            let ParentSpan { trace, span: parent, other_step } = parent;
            let (start, end) = (span.start(), span.end());
            let head = Head { trace, id, parent: Some(parent), name: span.name(), start, end };
            writer.span(head, |out| {
                let mut attributes = Attributes::new(out, ATTRIBUTES);
                self.write_span(span, &mut attributes);
                if let Some((trace, key)) = other_step {
                    link(out, trace, key, "parent");
                }
                if let Some((trace, key)) = span.previous().and_then(|previous| self.placements.target(previous)) {
                    link(out, trace, key, "previous");
                }
                self.write_causes(span, out);
                self.write_events(Owner::Span(span.id()), out);
            });
        }
    }

    /// Links the first enter of a call to those of the calls that it follows from.
    fn write_causes(&self, span: Span<'_>, out: &mut Vec<u8>) {
        if span.previous().is_some() {
            return;
        }
        let causes = span.follows_from();
        if let Some(dropped) = causes.len().checked_sub(MOST_LINKS).filter(|&dropped| dropped > 0) {
            wire::number(out, DROPPED_LINKS, dropped as u64);
        }
        for (trace, key) in causes.take(MOST_LINKS).filter_map(|cause| self.placements.target(cause)) {
            link(out, trace, key, "follows_from");
        }
    }

    fn write_span(&self, span: Span<'_>, attributes: &mut Attributes<'_>) {
        for (name, value) in span.fields().iter() {
            attributes.value(name, &self.cut(value));
        }
        let callsite = span.callsite();
        attributes.text(name::TARGET, callsite.target()).text(name::LEVEL, &callsite.level().to_string());
        if let (Some(file), Some(line)) = (callsite.file(), callsite.line()) {
            attributes.text(name::FILE, file).number(name::LINE, line);
        }
        attributes.number(name::THREAD, span.track().thread().as_u64());
        attributes.text(name::THREAD_NAME, span.track().thread_name());
        attributes.number(name::SELF_TIME, span.self_time().as_nanos());
        if let Some(cpu_time) = span.cpu_time() {
            attributes.number(name::CPU_TIME, cpu_time.as_nanos());
        }
        write_cut(span.cut(), attributes);
        if let Some(gpu) = &self.gpu {
            gpu.write(span.id(), attributes);
        }
    }

    /// Shortens a text to the limit.
    fn cut<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        match value {
            Value::Str(text) if text.len() > self.options.text_limit => {
                let end = (0..=self.options.text_limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
                Cow::Owned(Value::Str(Arc::from(&text[..end])))
            }
            other => Cow::Borrowed(other),
        }
    }

    fn write_events(&self, owner: Owner, out: &mut Vec<u8>) {
        let Some(events) = self.events.get(&owner) else { return };
        for event in events.iter().take(MOST_EVENTS) {
            wire::message(out, EVENTS, |out| {
                wire::fixed64(out, 1, event.at().as_unix_nanos().to_le_bytes());
                wire::bytes(out, 2, event.message().as_bytes());
                let mut attributes = Attributes::new(out, 3);
                for (name, value) in event.fields().iter().filter(|(name, _)| *name != "message") {
                    attributes.value(name, &self.cut(value));
                }
                attributes.text(name::TARGET, event.callsite().target());
                attributes.text(name::LEVEL, &event.callsite().level().to_string());
            });
        }
        if let Some(dropped) = events.len().checked_sub(MOST_EVENTS).filter(|&dropped| dropped > 0) {
            wire::number(out, DROPPED_EVENTS, dropped as u64);
        }
        if let Some(event) = events.iter().find(|event| event.callsite().level() == Level::Error) {
            error(out, event.message());
        }
    }
}

fn write_cut(cut: Cut, attributes: &mut Attributes<'_>) {
    let ends = match (cut.start, cut.end) {
        (false, false) => return,
        (true, false) => "start",
        (false, true) => "end",
        (true, true) => "both",
    };
    attributes.text(name::CUT, ends);
}

/// Writes how a GPU spent a step. Attributes of GPU 0 begin with `gpu`, those of GPU 1 with `gpu1`.
fn write_gpu(gpu: &StepGpu, attributes: &mut Attributes<'_>) {
    let usage = &gpu.usage;
    let prefix = match gpu.device.as_u32() {
        0 => "gpu".to_owned(),
        device => format!("gpu{device}"),
    };
    let named = |name: &str| format!("{prefix}.{name}");
    let nanos = |time: std::time::Duration| time.as_nanos();
    attributes.number(&named("kernel.count"), usage.kernels).number(&named("busy_ns"), nanos(usage.busy));
    attributes.number(&named("idle_ns"), nanos(usage.idle)).number(&named("waiting_ns"), nanos(usage.waiting));
    attributes.number(&named("copying_ns"), nanos(usage.copying)).number(&named("copy.bytes"), usage.copied);
    attributes.float(&named("utilization"), usage.busy_percent() / 100.0);
    attributes.text(&named("verdict"), usage.verdict.as_str());
    if let Some(bytes) = gpu.peak_memory {
        attributes.number(&named("memory.peak"), bytes);
    }
    if let Some(mfu) = usage.mfu() {
        attributes.float(&named("mfu"), mfu / 100.0);
    }
}
