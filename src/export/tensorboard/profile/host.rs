//! The plane of the host: a line for each thread, with its spans and API calls, and a line for memory.

use super::{
    device::STEP,
    ops::{OpId, Ops},
    plane::{EventNameId, Line, Plane, StatValue, Stats, TextId},
    stat::Stat,
    steps::Steps,
};
use crate::{
    export::{index_ranges::index_ranges, steps::steps_nest, wire::OpenMessage},
    trace::{
        ApiCall, DeviceId, Event, InputStage, MemoryChange, Nesting, Span, Timestamp, Trace, TrackId, Value,
        nesting_order,
    },
};
use rustc_hash::FxHashMap;
use std::{
    cmp::Reverse,
    collections::HashMap,
    io::{self, Seek, Write},
    ops::Range,
};

/// The number of the line with memory events. XProf looks for them on lines whose numbers begin here, and does not
/// include those lines in the times of operations.
const MEMORY_LINE: u64 = 0xdead_beef + 6;
/// The first number of input stages. XProf looks them up among the numbers of events' names, which are lower.
const STAGES: i64 = 1 << 40;
/// The first number of lines that belong to no thread.
const OTHER_LINES: u64 = 0xdea0_0000;
const WAITS: u64 = OTHER_LINES + 16;

/// Writes the plane of the host.
pub(super) struct Host<'a, 'b> {
    trace: &'a Trace,
    plane: Plane,
    ops: &'b Ops<'a>,
    steps: &'b Steps,
    /// The names of spans, by callsite.
    span_names: Vec<EventNameId>,
    op_names: FxHashMap<OpId, TextId>,
    field_names: HashMap<&'a str, TextId>,
}

/// An event of a line: its kind, and its index in the trace. A window has many, so they are small.
type Entry = (Kind, u32);

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
        let span_names = trace.callsites().iter().map(|callsite| event_name(&mut plane, callsite.name())).collect();
        let (op_names, field_names) = (FxHashMap::default(), HashMap::new());
        Self { trace, plane, ops, steps, span_names, op_names, field_names }
    }

    pub(super) fn write(mut self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        let message = OpenMessage::begin(out, 1)?;
        self.threads(out)?;
        self.waits();
        self.memory();
        self.non_finite_samples();
        self.plane.write_rest(out)?;
        message.close(out)
    }

    fn threads(&mut self, out: &mut (impl Write + Seek)) -> io::Result<()> {
        let trace = self.trace;
        let tracks = trace.tracks().len();
        let spans = index_ranges(tracks, trace.spans().map(|span| span.track_id().index()));
        let calls = index_ranges(tracks, trace.api_calls().map(|call| call.track_id().index()));
        let events = index_ranges(tracks, trace.events().map(|event| event.track_id().index()));
        let operations = index_ranges(tracks, trace.operations().map(|call| call.track_id().index()));
        let nested_steps = steps_nest(trace);
        let mut steps = vec![Vec::new(); tracks];
        for (group, step) in self.steps.iter(trace).filter(|_| nested_steps) {
            steps[step.track_id().index()].push((Kind::Step, group as u32));
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (track_index, track) in trace.tracks().iter().enumerate() {
            let here = TrackId::new(track_index);
            entries.clear();
            entries.append(&mut steps[track_index]);
            for span in trace.spans_at(spans[track_index].clone()).filter(|span| span.track_id() == here) {
                entries.push((Kind::Span, span.id().index() as u32));
            }
            for call in trace.api_calls_at(calls[track_index].clone()).filter(|call| call.track_id() == here) {
                entries.push((Kind::Call, call.id().index() as u32));
            }
            let numbered = events[track_index].clone().zip(trace.events_at(events[track_index].clone()));
            for (index, _) in numbered.filter(|(_, event)| event.track_id() == here) {
                entries.push((Kind::Event, index as u32));
            }
            for call in trace.operations_at(operations[track_index].clone()).filter(|call| call.track_id() == here) {
                entries.push((Kind::Operation, call.id().index() as u32));
            }
            // The stable sort is fast, since each kind is already sorted.
            entries.sort_by_key(|&entry| self.place(entry));
            if entries.is_empty() {
                continue;
            }
            let id = track.thread().as_u64().wrapping_add(u64::from(track.overlap()) * 10_000_000);
            let mut left = entries.iter();
            let used = Plane::write_line(out, (id, &track.label()), self.plane.line(), |line| {
                left.next().inspect(|&&(kind, index)| self.entry(line, kind, one(index))).is_some()
            })?;
            self.plane.use_stats(used);
        }
        if !nested_steps {
            let mut line = self.plane.line();
            (0..self.steps.iter(trace).count()).for_each(|group| self.step(&mut line, group));
            self.plane.add_line(OTHER_LINES + 2, "steps", line);
        }
        Ok(())
    }

    /// Returns the position of an event in its line, in the order that XProf expects: by start, the longer first, steps
    /// around spans, spans around calls.
    fn place(&self, (kind, index): Entry) -> (Option<(Timestamp, Reverse<Timestamp>)>, Entry) {
        let (trace, at) = (self.trace, |at: Timestamp| (at, Reverse(at)));
        let times = match kind {
            Kind::Step => Some(self.steps.get(trace, index as usize)).map(|step| (step.start(), Reverse(step.end()))),
            Kind::Span => trace.spans_at(one(index)).next().map(|span| (span.start(), Reverse(span.end()))),
            Kind::Call => trace.api_calls_at(one(index)).next().map(|call| (call.start(), Reverse(call.end()))),
            Kind::Event => trace.events_at(one(index)).next().map(|event| at(event.at())),
            Kind::Operation => trace.operations_at(one(index)).next().map(|call| at(call.at())),
        };
        (times, (kind, index))
    }

    /// Adds the event of this kind at this index of the trace, which is given as a range of one index.
    fn entry(&mut self, line: &mut Line, kind: Kind, index: Range<usize>) {
        let trace = self.trace;
        match kind {
            Kind::Step => self.step(line, index.start),
            Kind::Span => trace.spans_at(index).for_each(|span| self.span(line, span)),
            Kind::Call => trace.api_calls_at(index).for_each(|call| self.call(line, call)),
            Kind::Event => trace.events_at(index).for_each(|event| self.event(line, event)),
            Kind::Operation => trace.operations_at(index).for_each(|call| {
                let name = event_name(&mut self.plane, call.name());
                line.event(name, call.at(), call.at(), |_| ());
            }),
        }
    }

    fn step(&mut self, line: &mut Line, group: usize) {
        let step = self.steps.get(self.trace, group);
        let name = self.plane.event_name_shown_as(STEP, &format!("ProfilerStep#{}", step.number()));
        line.event(name, step.start(), step.end(), |stats| {
            stats.add(Stat::Root, StatValue::I64(1));
            stats.add(Stat::StepNum, StatValue::I64(step.number().cast_signed()));
        });
    }

    fn span(&mut self, line: &mut Line, span: Span<'a>) {
        let op = self.ops.of_span(span.id());
        let stage = span.input_stage();
        let op_name = match stage {
            // XProf recognizes spans of the input pipeline by their stage.
            Some(_) => None,
            None => Some(self.op_name(op)),
        };
        let names: Vec<_> = span.fields().iter().map(|(name, _)| self.field_name(name)).collect();
        line.nested(self.span_names[span.callsite_id().index()], span.start(), span.end(), |stats| {
            if let Some(op_name) = op_name {
                stats.add(Stat::TfOp, StatValue::Text(op_name));
            }
            if let Some(stage) = stage {
                let category = match stage {
                    InputStage::Read => "read",
                    InputStage::Enqueue => "enqueue",
                    _ => "preprocessing",
                };
                stats.add(Stat::StageId, StatValue::I64(STAGES + op.index() as i64));
                stats.add(Stat::StageName, StatValue::Str(span.name()));
                stats.add(Stat::StageCategory, StatValue::Str(category));
            }
            for (name, (_, value)) in names.iter().zip(span.fields().iter()) {
                add_value(stats, *name, value);
            }
        });
    }

    fn op_name(&mut self, op: OpId) -> TextId {
        *self.op_names.entry(op).or_insert_with(|| self.plane.text(&self.ops.get(op).full_name()))
    }

    fn call(&mut self, line: &mut Line, call: ApiCall<'a>) {
        let name = self.plane.event_name(call.name());
        line.event(name, call.start(), call.end(), |stats| {
            stats.add(Stat::CorrelationId, StatValue::U64(call.correlation().into()));
        });
    }

    fn event(&mut self, line: &mut Line, event: Event<'a>) {
        // The text of an event is its name, unless very many events have different texts.
        let is_named = !self.plane.has_many_names();
        let fields: Vec<_> = event.fields().iter().filter(|(name, _)| *name != "message" || !is_named).collect();
        let names: Vec<_> = fields.iter().map(|(name, _)| self.field_name(name)).collect();
        let name = if is_named { event.message() } else { event.callsite().name() };
        let name = event_name(&mut self.plane, name);
        line.event(name, event.at(), event.at(), |stats| {
            for (name, (_, value)) in names.iter().zip(&fields) {
                add_value(stats, *name, value);
            }
        });
    }

    /// Returns the name of a user's field. It must not be that of a stat that XProf knows, none of which contains a
    /// dot.
    fn field_name(&mut self, name: &'a str) -> TextId {
        *self.field_names.entry(name).or_insert_with(|| match name.contains('.') {
            true => self.plane.text(name),
            false => self.plane.text(&format!("field.{name}")),
        })
    }

    fn waits(&mut self) {
        let waits: Vec<_> = self.trace.waits().collect();
        let (mut nesting, mut lines) = (Nesting::default(), Vec::new());
        for index in nesting_order(waits.iter().map(|wait| (wait.start(), wait.end()))) {
            let wait = waits[index];
            let row = nesting.place(wait.start(), wait.end(), 0);
            lines.resize_with(lines.len().max(row + 1), || self.plane.line());
            let name = self.plane.event_name(wait.kind().as_str());
            lines[row].event(name, wait.start(), wait.end(), |_| ());
        }
        for (row, line) in (0..).zip(lines) {
            self.plane.add_line(WAITS + row, "waits for GPUs", line);
        }
    }

    /// Adds each allocation and free, with the memory that is in use after it.
    fn memory(&mut self) {
        let mut devices: HashMap<DeviceId, (TextId, u64)> = HashMap::new();
        let [allocated, freed] = [ALLOCATED, FREED].map(|name| self.plane.event_name(name));
        let [kept, temporary] = ["persist/dynamic", "temp"].map(|kind| self.plane.text(kind));
        let unattributed = self.plane.text("unattributed");
        let outlives = outlive_window(self.trace);
        let mut line = self.plane.line();
        for (index, allocation) in self.trace.allocations().enumerate() {
            let device = allocation.device();
            let (name, peak) = devices.entry(device).or_insert_with(|| (self.plane.text(&format!("GPU {device}")), 0));
            *peak = allocation.in_use().max(*peak);
            let (name, peak) = (*name, *peak);
            let op = allocation.span().map_or(unattributed, |span| {
                let op = self.ops.of_span(span.id());
                // Only the path, without the kind, since only people read it.
                self.plane.text(&self.ops.get(op).path)
            });
            let all = self.trace.device(device).map_or(0, |device| device.memory);
            let bytes = allocation.bytes().unwrap_or(0).cast_signed();
            let is_free = allocation.change() == MemoryChange::Free;
            line.event(if is_free { freed } else { allocated }, allocation.at(), allocation.at(), |stats| {
                stats.add(Stat::AllocatorName, StatValue::Text(name));
                for (stat, number) in [
                    (Stat::BytesAllocated, allocation.in_use().cast_signed()),
                    (Stat::BytesAvailable, all.saturating_sub(allocation.in_use()).cast_signed()),
                    (Stat::PeakBytesInUse, peak.cast_signed()),
                    (Stat::RequestedBytes, bytes),
                    (Stat::AllocationBytes, bytes),
                    (Stat::Address, allocation.address().cast_signed()),
                ] {
                    stats.add(stat, StatValue::I64(number));
                }
                stats.add(Stat::TfOp, StatValue::Text(op));
                stats.add(Stat::RegionType, StatValue::Text(if outlives[index] { kept } else { temporary }));
            });
        }
        self.plane.add_line(MEMORY_LINE, "GPU memory", line);
    }

    /// Adds the samples of counters that are not finite, which cannot be drawn.
    fn non_finite_samples(&mut self) {
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
        self.plane.add_line(OTHER_LINES + 1, "counters", line);
    }
}

/// Returns an index as a range.
fn one(index: u32) -> Range<usize> {
    index as usize..index as usize + 1
}

/// Returns for each allocation whether it is not freed in the window.
fn outlive_window(trace: &Trace) -> Vec<bool> {
    let mut outlives = vec![false; trace.allocations().len()];
    let mut open: HashMap<(DeviceId, u64), usize> = HashMap::new();
    for (index, allocation) in trace.allocations().enumerate() {
        let key = (allocation.device(), allocation.address());
        match allocation.change() {
            MemoryChange::Allocate => drop(open.insert(key, index)),
            MemoryChange::Free => drop(open.remove(&key)),
        }
    }
    open.into_values().for_each(|index| outlives[index] = true);
    outlives
}

/// Returns the number of a span's or event's name. XProf would take a name with a colon for an operation and its kind,
/// and a name such as `MemoryAllocation` for a change in memory.
fn event_name(plane: &mut Plane, name: &str) -> EventNameId {
    match name {
        ALLOCATED | FREED => plane.event_name_shown_as(&format!("span {name}"), name),
        _ => plane.event_name_shown_as(&name.replace(':', "/"), name),
    }
}

const ALLOCATED: &str = "MemoryAllocation";
const FREED: &str = "MemoryDeallocation";

fn add_value(stats: &mut Stats<'_>, name: TextId, value: &Value) {
    match value {
        Value::U64(number) => stats.add_named(name, StatValue::U64(*number)),
        Value::I64(number) => stats.add_named(name, StatValue::I64(*number)),
        Value::F64(number) if number.is_finite() => stats.add_named(name, StatValue::F64(*number)),
        Value::Str(text) => stats.add_named(name, StatValue::Str(text)),
        other => stats.add_named(name, StatValue::Str(&other.to_string())),
    }
}
