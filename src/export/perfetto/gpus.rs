//! The tracks of GPUs: a group for each, with its memory, its waits and its streams.

use super::{
    event::Event,
    proto::{ChildTracksOrdering, CounterDescriptor, TrackDescriptor, Unit},
    sequence::Sequence,
    writer::Writer,
};
use crate::{
    export::{
        batch_text::BatchText,
        flows::Flows,
        nest::Nest,
        ranges::{Cause, GpuRange, gpu_ranges},
        runs::runs,
        shape::Shape,
    },
    trace::{Allocation, Device, DeviceId, Kernel, Stream, StreamId, Timestamp, Value, Wait, Work, WorkId},
};
use rustc_hash::FxHashMap;
use std::{
    cmp::Reverse,
    collections::BTreeSet,
    io::{self, Write},
};

impl<'a, W: Write> Writer<'a, W> {
    /// What joins a call to a piece of its work. Salted, so that traces of several ranks do not mix.
    pub(super) fn flow(&self, work: WorkId) -> u64 {
        self.uuid + work.index() as u64
    }

    pub(super) fn gpus(&mut self, flows: &Flows) -> io::Result<()> {
        let trace = self.trace;
        let streams = trace.streams().iter().map(Stream::device);
        let allocations = trace.allocations().map(Allocation::device);
        let devices: BTreeSet<_> = streams.chain(trace.waits().filter_map(Wait::device)).chain(allocations).collect();
        let ranges = gpu_ranges(trace);
        let runs = runs(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
        for device in devices {
            let group = self.group(device)?;
            self.memory(group, device)?;
            self.waits(group, "waits", trace.waits().filter(|wait| wait.device() == Some(device)))?;
            let streams = trace.streams().iter().enumerate().filter(|(_, stream)| stream.device() == device);
            let contexts: BTreeSet<_> = streams.clone().map(|(_, stream)| stream.context()).collect();
            for (place, stream) in streams {
                let stream_id = StreamId::new(place);
                let name = name(stream, contexts.len());
                self.ranges(group, &name, stream_id, &ranges)?;
                let sequence = self.child(group, name)?;
                let work = trace.work_at(runs[place].clone());
                self.work(sequence, flows, work.filter(|work| work.stream_id() == stream_id))?;
            }
        }
        self.waits(self.uuid, "GPU waits", trace.waits().filter(|wait| wait.device().is_none()))?;
        let overheads = trace.overheads().iter().map(|overhead| {
            let event = |sequence: &mut Sequence| sequence.named(overhead.name());
            (overhead.start(), overhead.end(), event)
        });
        self.nested(self.uuid, "GPU profiling overhead", overheads.collect())
    }

    fn group(&mut self, device: DeviceId) -> io::Result<u64> {
        let metadata = self.trace.metadata();
        let mut name = format!("GPU {device}");
        if let Some(device) = self.trace.device(device) {
            name = format!("{name} · {}", device.name);
        }
        if metadata.world_size > 1 {
            name = format!("{name} · rank {}", metadata.rank);
        }
        self.track(TrackDescriptor {
            name: Some(name),
            child_ordering: Some(ChildTracksOrdering::Explicit as i32),
            ..TrackDescriptor::default()
        })
    }

    fn memory(&mut self, group: u64, device: DeviceId) -> io::Result<()> {
        let mut allocations = self.trace.allocations().filter(|allocation| allocation.device() == device).peekable();
        if allocations.peek().is_none() {
            return Ok(());
        }
        let bytes = CounterDescriptor { unit: Some(Unit::SizeBytes as i32) };
        let mut sequence = self.counter(group, "memory in use".to_owned(), bytes)?;
        allocations.try_for_each(|allocation| sequence.count(self, allocation.at(), allocation.in_use() as f64))
    }

    fn waits(&mut self, parent: u64, name: &str, waits: impl Iterator<Item = Wait<'a>>) -> io::Result<()> {
        let waits = waits.map(|wait| {
            let event = move |sequence: &mut Sequence| {
                let mut event = sequence.named(wait.kind().as_str());
                let numbers = [
                    ("correlation", Some(wait.correlation())),
                    ("context", Some(wait.context())),
                    ("stream", wait.stream()),
                    ("event", wait.event()),
                ];
                for (name, number) in numbers {
                    if let Some(number) = number {
                        sequence.annotate_one(&mut event, name, &Value::U64(number.into()));
                    }
                }
                sequence.annotate_cause(&mut event, wait.span(), wait.attribution());
                event
            };
            (wait.start(), wait.end(), event)
        });
        self.nested(parent, name, waits.collect())
    }

    /// Slices in any order, on as many tracks of this name as it takes for them to nest.
    fn nested<E: Fn(&mut Sequence) -> Event>(
        &mut self,
        parent: u64,
        name: &str,
        mut slices: Vec<(Timestamp, Timestamp, E)>,
    ) -> io::Result<()> {
        slices.sort_by_key(|&(start, end, _)| (start, Reverse(end)));
        let mut nest = Nest::default();
        let mut rows: Vec<Sequence> = Vec::new();
        for (start, end, event) in slices {
            let row = nest.place(start, end, 0);
            if row == rows.len() {
                rows.push(self.child(parent, name.to_owned())?);
            }
            let sequence = &mut rows[row];
            let event = event(sequence);
            sequence.slice(self, start, end, event)?;
        }
        rows.into_iter().try_for_each(|sequence| sequence.finish(self))
    }

    /// The steps and spans of a stream, on rows of their own above it.
    fn ranges(&mut self, group: u64, name: &str, stream: StreamId, ranges: &[GpuRange]) -> io::Result<()> {
        let first = ranges.partition_point(|range| range.stream < stream);
        let trace = self.trace;
        let mut rows: Vec<Option<Sequence>> = Vec::new();
        for range in ranges[first..].iter().take_while(|range| range.stream == stream) {
            rows.resize_with(rows.len().max(range.row + 1), || None);
            let row = &mut rows[range.row];
            let sequence = match row {
                Some(sequence) => sequence,
                None => row.insert(self.child(group, format!("{name} · steps and spans"))?),
            };
            let event = match range.cause {
                Cause::Step(step) => sequence.named(&format!("ProfilerStep#{}", trace.steps()[step.index()].number())),
                Cause::Span(span) => {
                    let span = trace.span(span);
                    sequence.at_callsite(span.callsite_id().index(), span.callsite())
                }
            };
            sequence.slice(self, range.start, range.end, event)?;
        }
        rows.into_iter().flatten().try_for_each(|sequence| sequence.finish(self))
    }

    fn work(&mut self, mut sequence: Sequence, flows: &Flows, work: impl Iterator<Item = Work<'a>>) -> io::Result<()> {
        let mut shapes: FxHashMap<Shape, Event> = FxHashMap::default();
        let mut batch = BatchText::default();
        for work in work {
            let shape = Shape::of(work);
            if shapes.len() >= Shape::KEPT && !shapes.contains_key(&shape) {
                shapes.clear();
            }
            let alike = shapes.entry(shape).or_insert_with(|| {
                let device = self.trace.device(work.stream().device());
                launch(&mut sequence, work, device)
            });
            let mut event = sequence.again(alike);
            sequence.annotate_one(&mut event, "correlation", &Value::U64(work.correlation().into()));
            if work.kernel().is_none() {
                sequence.annotate_one(&mut event, "bytes", &Value::U64(work.bytes()));
            }
            if let Some(rate) = work.bytes_per_second() {
                sequence.annotate_one(&mut event, "bandwidth (GB/s)", &Value::F64(rate / 1e9));
            }
            if let Some(node) = work.graph() {
                sequence.annotate_one(&mut event, "graph", &Value::U64(node.graph.into()));
                sequence.annotate_one(&mut event, "graph node", &Value::U64(node.node));
            }
            sequence.annotate_cause(&mut event, work.span(), work.attribution());
            if let Some((operations, spans)) = batch.of(work) {
                sequence.annotate_text(&mut event, "ops", operations);
                if let Some(spans) = spans {
                    sequence.annotate_text(&mut event, "spans", spans);
                }
            }
            if flows.lead_to(work.id()) {
                event.end_flow(self.flow(work.id()));
            }
            sequence.slice(self, work.start(), work.end(), event)?;
        }
        sequence.finish(self)
    }
}

/// A stream's name among those of its device, which has so many contexts. They may number their streams alike, and Perfetto makes one track of those that
/// share a name.
fn name(stream: &Stream, contexts: usize) -> String {
    match contexts {
        ..=1 => stream.label(),
        _ => format!("{} · context {}", stream.label(), stream.context()),
    }
}

/// What is the same for all work of a shape.
fn launch(sequence: &mut Sequence, work: Work<'_>, device: Option<&Device>) -> Event {
    let mut event = sequence.named(&work.name().to_string());
    let Some(kernel) = work.kernel() else { return event };
    let Kernel { grid, block, registers, static_shared_memory, dynamic_shared_memory, .. } = kernel;
    let mut say = |name, value| sequence.annotate_one(&mut event, name, &value);
    say("grid", Value::Str(format!("{grid:?}").into()));
    say("block", Value::Str(format!("{block:?}").into()));
    say("registers per thread", Value::U64((*registers).into()));
    let shared = u64::from(*static_shared_memory) + u64::from(*dynamic_shared_memory);
    say("shared memory", Value::U64(shared));
    if let Some(occupancy) = device.and_then(|device| device.occupancy(kernel)) {
        say("estimated occupancy %", Value::U64(occupancy.percent.round() as u64));
    }
    if kernel.raw_name != kernel.name {
        say("raw name", Value::Str(kernel.raw_name.clone()));
    }
    event
}
