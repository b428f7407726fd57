//! The plane of the host: a line for each thread, with its spans and the calls of the GPU's API among them, and one for memory.

use super::{
    device::STEP,
    ops::{OpId, Ops},
    plane::{EventName, Line, Plane, Said, Stats, Text},
    stat::Stat,
    steps::Steps,
};
use crate::{
    export::{
        nest::{Nest, steps_nest},
        runs::runs,
    },
    trace::{ApiCall, DeviceId, Event, InputStage, MemoryChange, Span, Timestamp, Trace, TrackId, Value},
};
use rustc_hash::FxHashMap;
use std::{
    cmp::Reverse,
    collections::HashMap,
    io::{self, Write},
    ops::Range,
};

/// XProf looks for memory on lines that it makes itself, the numbers of which begin here, and leaves them out of the times of operations.
const MEMORY_LINE: u64 = 0xdead_beef + 6;
/// Where the numbers of input stages begin: XProf looks for them among the numbers of events' names.
const STAGES: i64 = 1 << 40;
/// Lines of what no thread does.
const OTHER_LINES: u64 = 0xdea0_0000;
const WAITS: u64 = OTHER_LINES + 16;

pub(super) struct Host<'a, 'b> {
    trace: &'a Trace,
    plane: Plane,
    ops: &'b Ops<'a>,
    steps: &'b Steps,
    /// By callsite.
    span_names: Vec<EventName>,
    op_names: FxHashMap<OpId, Text>,
    field_names: HashMap<&'a str, Text>,
}

/// Something on a line, in the order that XProf wants: by the start, the longer first, steps around spans, spans around calls.
type Entry = (Timestamp, Reverse<Timestamp>, Kind, usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Step,
    Span,
    Call,
    Event,
    Operation,
}

impl<'a, 'b> Host<'a, 'b> {
    pub(super) fn new(trace: &'a Trace, ops: &'b Ops<'a>, steps: &'b Steps) -> Self {
        let mut plane = Plane::new(trace, 0, "/host:CPU");
        let span_names = trace.callsites().iter().map(|callsite| name(&mut plane, callsite.name())).collect();
        let (op_names, field_names) = (FxHashMap::default(), HashMap::new());
        Self { trace, plane, ops, steps, span_names, op_names, field_names }
    }

    pub(super) fn write(mut self, out: &mut impl Write) -> io::Result<()> {
        self.threads();
        self.waits();
        self.memory();
        self.numbers_that_cannot_be_drawn();
        self.plane.write(out)
    }

    fn threads(&mut self) {
        let trace = self.trace;
        let tracks = trace.tracks().len();
        let spans = runs(tracks, trace.spans().map(|span| span.track_id().index()));
        let calls = runs(tracks, trace.api_calls().map(|call| call.track_id().index()));
        let events = runs(tracks, trace.events().map(|event| event.track_id().index()));
        let told = runs(tracks, trace.operations().map(|told| told.track_id().index()));
        let nested_steps = steps_nest(trace);
        let mut steps = vec![Vec::new(); tracks];
        for (group, step) in self.steps.iter(trace).filter(|_| nested_steps) {
            steps[step.track_id().index()].push((step.start(), Reverse(step.end()), Kind::Step, group as usize));
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (place, track) in trace.tracks().iter().enumerate() {
            let here = TrackId::new(place);
            entries.clear();
            entries.append(&mut steps[place]);
            for span in trace.spans_at(spans[place].clone()).filter(|span| span.track_id() == here) {
                entries.push((span.start(), Reverse(span.end()), Kind::Span, span.id().index()));
            }
            for call in trace.api_calls_at(calls[place].clone()).filter(|call| call.track_id() == here) {
                entries.push((call.start(), Reverse(call.end()), Kind::Call, call.id().index()));
            }
            let here_said = events[place].clone().zip(trace.events_at(events[place].clone()));
            for (index, event) in here_said.filter(|(_, event)| event.track_id() == here) {
                entries.push((event.at(), Reverse(event.at()), Kind::Event, index));
            }
            for told in trace.operations_at(told[place].clone()).filter(|told| told.track_id() == here) {
                entries.push((told.at(), Reverse(told.at()), Kind::Operation, told.id().index()));
            }
            // Runs that are in order each, which this sort makes use of.
            entries.sort();
            let mut line = self.plane.line();
            for &(_, _, kind, index) in &entries {
                self.entry(&mut line, kind, index..index + 1);
            }
            let id = track.thread().as_u64().wrapping_add(u64::from(track.overlap()) * 10_000_000);
            self.plane.add(id, &track.label(), &line);
        }
        if !nested_steps {
            let mut line = self.plane.line();
            (0..self.steps.iter(trace).count()).for_each(|group| self.step(&mut line, group));
            self.plane.add(OTHER_LINES + 2, "steps", &line);
        }
    }

    /// What is at `place`, of which there is one.
    fn entry(&mut self, line: &mut Line, kind: Kind, place: Range<usize>) {
        let trace = self.trace;
        match kind {
            Kind::Step => self.step(line, place.start),
            Kind::Span => trace.spans_at(place).for_each(|span| self.span(line, span)),
            Kind::Call => trace.api_calls_at(place).for_each(|call| self.call(line, call)),
            Kind::Event => trace.events_at(place).for_each(|event| self.event(line, event)),
            Kind::Operation => trace.operations_at(place).for_each(|told| {
                let name = name(&mut self.plane, told.name());
                line.event(name, told.at(), told.at(), |_| ());
            }),
        }
    }

    fn step(&mut self, line: &mut Line, group: usize) {
        let step = self.steps.get(self.trace, group);
        let name = self.plane.shown_as(STEP, &format!("ProfilerStep#{}", step.number()));
        line.event(name, step.start(), step.end(), |stats| {
            stats.say(Stat::Root, Said::I64(1));
            stats.say(Stat::StepNum, Said::I64(step.number().cast_signed()));
        });
    }

    fn span(&mut self, line: &mut Line, span: Span<'a>) {
        let op = self.ops.of_span(span.id());
        let stage = span.input_stage();
        let op_name = match stage {
            // XProf has these from their stage.
            Some(_) => None,
            None => Some(self.op_name(op)),
        };
        let names: Vec<_> = span.fields().iter().map(|(name, _)| self.field_name(name)).collect();
        line.nested(self.span_names[span.callsite_id().index()], span.start(), span.end(), |stats| {
            if let Some(op_name) = op_name {
                stats.say(Stat::TfOp, Said::Text(op_name));
            }
            if let Some(stage) = stage {
                let category = match stage {
                    InputStage::Read => "read",
                    InputStage::Enqueue => "enqueue",
                    _ => "preprocessing",
                };
                stats.say(Stat::StageId, Said::I64(STAGES + op.index() as i64));
                stats.say(Stat::StageName, Said::Str(span.name()));
                stats.say(Stat::StageCategory, Said::Str(category));
            }
            for (name, (_, value)) in names.iter().zip(span.fields().iter()) {
                say_value(stats, *name, value);
            }
        });
    }

    fn op_name(&mut self, op: OpId) -> Text {
        *self.op_names.entry(op).or_insert_with(|| self.plane.text(&self.ops.get(op).full_name()))
    }

    fn call(&mut self, line: &mut Line, call: ApiCall<'a>) {
        let name = self.plane.event_name(call.name());
        line.event(name, call.start(), call.end(), |stats| {
            stats.say(Stat::CorrelationId, Said::U64(call.correlation().into()));
        });
    }

    fn event(&mut self, line: &mut Line, event: Event<'a>) {
        let fields: Vec<_> = event.fields().iter().filter(|(name, _)| *name != "message").collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| self.field_name(name)).collect();
        let name = name(&mut self.plane, event.message());
        line.event(name, event.at(), event.at(), |stats| {
            for (name, (_, value)) in names.iter().zip(&fields) {
                say_value(stats, *name, value);
            }
        });
    }

    /// A user's field must not be taken for a stat that means something to XProf, none of which has a dot in it.
    fn field_name(&mut self, name: &'a str) -> Text {
        *self.field_names.entry(name).or_insert_with(|| match name.contains('.') {
            true => self.plane.text(name),
            false => self.plane.text(&format!("field.{name}")),
        })
    }

    fn waits(&mut self) {
        let mut waits: Vec<_> = self.trace.waits().collect();
        waits.sort_by_key(|wait| (wait.start(), Reverse(wait.end())));
        let (mut nest, mut lines) = (Nest::default(), Vec::new());
        for wait in waits {
            let row = nest.place(wait.start(), wait.end(), 0);
            lines.resize_with(lines.len().max(row + 1), || self.plane.line());
            let name = self.plane.event_name(wait.kind().as_str());
            lines[row].event(name, wait.start(), wait.end(), |_| ());
        }
        for (row, line) in (0..).zip(&lines) {
            self.plane.add(WAITS + row, "waits for GPUs", line);
        }
    }

    /// Each allocation and free, with what is in use after it.
    fn memory(&mut self) {
        let mut devices: HashMap<DeviceId, (Text, u64)> = HashMap::new();
        let [allocated, freed] = [ALLOCATED, FREED].map(|name| self.plane.event_name(name));
        let [kept, temporary] = ["persist/dynamic", "temp"].map(|kind| self.plane.text(kind));
        let unattributed = self.plane.text("unattributed");
        let outlives = outlives(self.trace);
        let mut line = self.plane.line();
        for (place, allocation) in self.trace.allocations().enumerate() {
            let device = allocation.device();
            let (name, peak) = devices.entry(device).or_insert_with(|| (self.plane.text(&format!("GPU {device}")), 0));
            *peak = allocation.in_use().max(*peak);
            let (name, peak) = (*name, *peak);
            let op = allocation.span().map_or(unattributed, |span| {
                let op = self.ops.of_span(span.id());
                // Without a kind: this is a name to people only.
                self.plane.text(&self.ops.get(op).path)
            });
            let all = self.trace.device(device).map_or(0, |device| device.memory);
            let bytes = allocation.bytes().unwrap_or(0).cast_signed();
            let is_free = allocation.change() == MemoryChange::Free;
            line.event(if is_free { freed } else { allocated }, allocation.at(), allocation.at(), |stats| {
                stats.say(Stat::AllocatorName, Said::Text(name));
                for (stat, number) in [
                    (Stat::BytesAllocated, allocation.in_use().cast_signed()),
                    (Stat::BytesAvailable, all.saturating_sub(allocation.in_use()).cast_signed()),
                    (Stat::PeakBytesInUse, peak.cast_signed()),
                    (Stat::RequestedBytes, bytes),
                    (Stat::AllocationBytes, bytes),
                    (Stat::Address, allocation.address().cast_signed()),
                ] {
                    stats.say(stat, Said::I64(number));
                }
                stats.say(Stat::TfOp, Said::Text(op));
                stats.say(Stat::RegionType, Said::Text(if outlives[place] { kept } else { temporary }));
            });
        }
        self.plane.add(MEMORY_LINE, "GPU memory", &line);
    }

    /// Samples of counters for which there is no height.
    fn numbers_that_cannot_be_drawn(&mut self) {
        let mut line = self.plane.line();
        let mut samples: Vec<_> = self
            .trace
            .counters()
            .iter()
            .flat_map(|counter| counter.samples().iter().map(move |&(at, value)| (at, counter.name(), value)))
            .filter(|(.., value)| !value.is_finite())
            .collect();
        samples.sort_by_key(|&(at, ..)| at);
        for (at, name, value) in samples {
            let name = self.plane.event_name(&format!("{name} is {value}"));
            line.event(name, at, at, |_| ());
        }
        self.plane.add(OTHER_LINES + 1, "counters", &line);
    }
}

/// Which allocations are not freed in the window.
fn outlives(trace: &Trace) -> Vec<bool> {
    let mut outlives = vec![false; trace.allocations().len()];
    let mut open: HashMap<(DeviceId, u64), usize> = HashMap::new();
    for (place, allocation) in trace.allocations().enumerate() {
        let key = (allocation.device(), allocation.address());
        match allocation.change() {
            MemoryChange::Allocate => drop(open.insert(key, place)),
            MemoryChange::Free => drop(open.remove(&key)),
        }
    }
    open.into_values().for_each(|place| outlives[place] = true);
    outlives
}

/// What is named with a colon, XProf takes for an operation and its kind, and what is named like these, for a change of memory.
fn name(plane: &mut Plane, name: &str) -> EventName {
    match name {
        ALLOCATED | FREED => plane.shown_as(&format!("span {name}"), name),
        _ => plane.shown_as(&name.replace(':', "/"), name),
    }
}

const ALLOCATED: &str = "MemoryAllocation";
const FREED: &str = "MemoryDeallocation";

fn say_value(stats: &mut Stats<'_>, name: Text, value: &Value) {
    match value {
        Value::U64(number) => stats.say_named(name, Said::U64(*number)),
        Value::I64(number) => stats.say_named(name, Said::I64(*number)),
        Value::F64(number) if number.is_finite() => stats.say_named(name, Said::F64(*number)),
        Value::Str(text) => stats.say_named(name, Said::Str(text)),
        other => stats.say_named(name, Said::Str(&other.to_string())),
    }
}
