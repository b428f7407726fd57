//! A window as spans: `step N` at the root of each trace, in it what the program did, and in that what GPUs did for it.

mod work;

use super::{
    super::wire,
    attributes::{Attributes, name},
    gpu::GpuParts,
    places::{Inside, Places},
    run_trace::{RunTrace, StepTrace},
    settings::GpuSpans,
    span_writer::{ATTRIBUTES, DROPPED_EVENTS, EVENTS, Head, SpanWriter, error, link},
};
use crate::{
    analysis::{StepGpu, gpu_steps},
    trace::{Cut, Event, Level, Span, SpanId, Step, StepId, Timestamp, Trace, Value, Work},
};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// How a window becomes spans.
#[derive(Clone, Debug)]
pub(super) struct Detailing {
    pub(super) run: RunTrace,
    pub(super) schedule: String,
    pub(super) gpu: GpuSpans,
    /// Spans of GPU work in a trace, at the most.
    pub(super) most_work: usize,
    pub(super) samples_per_step: Option<u64>,
    /// The longest text of an attribute, in bytes.
    pub(super) text_limit: usize,
}

/// Events of a span that are kept.
const MOST_EVENTS: usize = 128;

/// Writes a window. `dropped` spans did not get through before.
pub(super) fn write(trace: &Trace, detailing: &Detailing, dropped: u64, writer: &mut SpanWriter<'_>) {
    let window = Window::new(trace, detailing);
    window.write_roots(dropped, writer);
    window.write_spans(writer);
    match detailing.gpu {
        GpuSpans::Kernels => window.write_work(writer),
        GpuSpans::Aggregate => window.write_gpu_parts(writer),
        GpuSpans::Off => {}
    }
}

/// What has been worked out of a window.
struct Window<'a> {
    trace: &'a Trace,
    detailing: &'a Detailing,
    places: Places<'a>,
    gpu: Option<GpuParts>,
    events: FxHashMap<Owner, Vec<Event<'a>>>,
}

/// Whose an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Span(SpanId),
    Step(StepId),
    Window,
}

impl<'a> Window<'a> {
    fn new(trace: &'a Trace, detailing: &'a Detailing) -> Self {
        let mut events: FxHashMap<Owner, Vec<Event<'a>>> = FxHashMap::default();
        for event in trace.events() {
            let in_step = || {
                let past = trace.steps().partition_point(|step| step.start() <= event.at());
                let place = past.checked_sub(1).filter(|&place| event.at() <= trace.steps()[place].end());
                place.map_or(Owner::Window, |place| Owner::Step(StepId::new(place)))
            };
            let owner = event.span().map_or_else(in_step, |span| Owner::Span(span.id()));
            events.entry(owner).or_default().push(event);
        }
        let homeless = trace.spans().any(|span| span.step_id().is_none())
            || trace.work().any(|work| work.step_id().is_none())
            || events.contains_key(&Owner::Window);
        Self {
            trace,
            detailing,
            places: Places::new(trace, &detailing.run, homeless),
            gpu: (detailing.gpu != GpuSpans::Off).then(|| GpuParts::of(trace)),
            events,
        }
    }

    fn write_roots(&self, dropped: u64, writer: &mut SpanWriter<'_>) {
        let mut gpus: BTreeMap<u64, Vec<StepGpu>> = BTreeMap::new();
        gpu_steps(self.trace).into_iter().for_each(|gpu| gpus.entry(gpu.step).or_default().push(gpu));
        let mut nobodys = vec![0_u64; self.trace.steps().len()];
        for step in self.trace.work().filter(|work| work.span().is_none()).filter_map(Work::step_id) {
            nobodys[step.index()] += 1;
        }
        for (place, step) in self.trace.steps().iter().enumerate() {
            let Some(home) = self.places.home_of(Some(StepId::new(place))) else { continue };
            let text = format!("step {}", step.number());
            self.write_root(
                home,
                &text,
                (step.start(), step.end()),
                Owner::Step(StepId::new(place)),
                writer,
                |attributes| {
                    attributes.number(name::STEP, step.number()).text(name::PHASE, "record");
                    write_cut(step.cut(), attributes);
                    self.write_step(step, attributes);
                    gpus.get(&step.number()).into_iter().flatten().for_each(|gpu| write_gpu(gpu, attributes));
                    if nobodys[place] > 0 {
                        attributes.number(name::UNATTRIBUTED, nobodys[place]);
                    }
                    if dropped > 0 {
                        attributes.number(name::DROPPED, dropped);
                    }
                },
            );
        }
        if let Some(home) = self.places.home_of(None) {
            let text = format!("window {}", self.trace.window());
            let times = (self.trace.start(), self.trace.end());
            self.write_root(home, &text, times, Owner::Window, writer, |_| ());
        }
    }

    fn write_root(
        &self,
        home: StepTrace,
        name: &str,
        (start, end): (Timestamp, Timestamp),
        owner: Owner,
        writer: &mut SpanWriter<'_>,
        more: impl FnOnce(&mut Attributes<'_>),
    ) {
        let run = &self.detailing.run;
        writer.span(Head { trace: home.trace, id: home.root, parent: None, name, start, end }, |out| {
            let mut attributes = Attributes::new(out, ATTRIBUTES);
            attributes.number(name::WINDOW, self.trace.window()).text(name::SCHEDULE, &self.detailing.schedule);
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
            self.places.links(step).iter().for_each(|&(trace, span)| link(out, trace, span, "trace"));
            self.write_events(owner, out);
        });
    }

    /// What the program itself says of a step.
    fn write_step(&self, step: &Step, attributes: &mut Attributes<'_>) {
        let mut samples = self.detailing.samples_per_step.map(|samples| samples as f64);
        for (counter, value) in self.trace.counters_in(step) {
            if counter == crate::trace::convention::SAMPLES {
                samples = Some(value);
            }
            attributes.float(&format!("{}{counter}", name::COUNTER), value);
        }
        if let Some(samples) = samples.filter(|_| !step.duration().is_zero() && !step.cut().any()) {
            attributes.float(name::RATE, samples / step.duration().as_secs_f64());
        }
    }

    fn write_spans(&self, writer: &mut SpanWriter<'_>) {
        for span in self.trace.spans() {
            let Some((id, Inside { trace, parent, outside })) = self.places.sent(span) else { continue };
            let (start, end) = (span.start(), span.end());
            let head = Head { trace, id, parent: Some(parent), name: span.name(), start, end };
            writer.span(head, |out| {
                let mut attributes = Attributes::new(out, ATTRIBUTES);
                self.write_span(span, &mut attributes);
                if let Some((trace, key)) = outside {
                    link(out, trace, key, "parent");
                }
                self.write_events(Owner::Span(span.id()), out);
            });
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
        write_cut(span.cut(), attributes);
        if let Some(gpu) = &self.gpu {
            gpu.write(span.id(), attributes);
        }
    }

    fn cut<'v>(&self, value: &'v Value) -> Cow<'v, Value> {
        match value {
            Value::Str(text) if text.len() > self.detailing.text_limit => {
                let end = (0..=self.detailing.text_limit).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
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

/// How a GPU spent a step. Further GPUs have their number in the names.
fn write_gpu(gpu: &StepGpu, attributes: &mut Attributes<'_>) {
    let usage = &gpu.usage;
    let prefix = match gpu.device.as_u32() {
        0 => "gpu".to_owned(),
        device => format!("gpu{device}"),
    };
    let called = |what: &str| format!("{prefix}.{what}");
    let nanos = |time: std::time::Duration| time.as_nanos();
    attributes.number(&called("kernel.count"), usage.kernels).number(&called("busy_ns"), nanos(usage.busy));
    attributes.number(&called("idle_ns"), nanos(usage.idle)).number(&called("waiting_ns"), nanos(usage.waiting));
    attributes.number(&called("copying_ns"), nanos(usage.copying)).number(&called("copy.bytes"), usage.copied);
    attributes.float(&called("utilization"), usage.busy_percent() / 100.0);
    attributes.text(&called("verdict"), usage.verdict.as_str());
    if let Some(bytes) = gpu.peak_memory {
        attributes.number(&called("memory.peak"), bytes);
    }
    if let Some(mfu) = usage.mfu() {
        attributes.float(&called("mfu"), mfu / 100.0);
    }
}
