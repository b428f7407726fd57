//! The tracks of GPUs: a group for each, with its memory, its waits and its streams.

use super::{
    event::Event,
    proto::{ChildTracksOrdering, CounterDescriptor, TrackDescriptor, Unit},
    sequence::Sequence,
    tracks::TrackWriter,
};
use crate::{
    export::{
        category,
        flows::LaunchFlows,
        gpu_ranges::{Cause, GpuRange, gpu_ranges},
        index_ranges::index_ranges,
        work_text::{Cache, OperationNames, WorkKey},
    },
    trace::{
        Allocation, Device, DeviceId, Kernel, Nesting, Stream, StreamId, Timestamp, Value, Wait, Work, nesting_order,
    },
};
use std::io;

/// Writes the tracks of all GPUs, and of the waits and overheads that belong to none.
pub(super) fn write(out: &mut TrackWriter<'_>, flows: &LaunchFlows) -> io::Result<()> {
    let (trace, process) = (out.trace, out.uuid);
    let streams = trace.streams().iter().map(Stream::device);
    let allocations = trace.allocations().map(Allocation::device);
    let devices = DeviceId::distinct(streams.chain(trace.waits().filter_map(Wait::device)).chain(allocations));
    let ranges = gpu_ranges(trace);
    let of_streams = index_ranges(trace.streams().len(), trace.work().map(|work| work.stream_id().index()));
    for device in devices {
        let group = write_group(out, device)?;
        write_memory(out, group, device)?;
        write_counters(out, group, device)?;
        write_waits(out, group, "waits", trace.waits().filter(|wait| wait.device() == Some(device)))?;
        let streams = trace.streams().iter().enumerate().filter(|(_, stream)| stream.device() == device);
        let several_contexts = trace.has_several_contexts(device);
        for (index, stream) in streams {
            let stream_id = StreamId::new(index);
            let name = stream_name(stream, several_contexts);
            write_ranges(out, group, &name, stream_id, &ranges)?;
            let sequence = out.child(group, name)?;
            let work = trace.work_at(of_streams[index].clone());
            write_work(out, sequence, flows, work.filter(|work| work.stream_id() == stream_id))?;
        }
    }
    write_waits(out, process, "GPU waits", trace.waits().filter(|wait| wait.device().is_none()))?;
    let overheads = trace.overheads().iter().map(|overhead| {
        let event = |sequence: &mut Sequence| sequence.named(category::OVERHEAD, overhead.name());
        (overhead.start(), overhead.end(), event)
    });
    write_nested(out, process, "GPU profiling overhead", &overheads.collect::<Vec<_>>())
}

/// Describes the group of a GPU's tracks, and returns its uuid.
fn write_group(out: &mut TrackWriter<'_>, device: DeviceId) -> io::Result<u64> {
    let metadata = out.trace.metadata();
    let mut name = format!("GPU {device}");
    if let Some(device) = out.trace.device(device) {
        name = format!("{name} · {}", device.name);
    }
    if metadata.world_size > 1 {
        name = format!("{name} · rank {}", metadata.rank);
    }
    out.track(TrackDescriptor {
        name: Some(name),
        child_ordering: Some(ChildTracksOrdering::Explicit as i32),
        ..TrackDescriptor::default()
    })
}

/// Writes the memory in use, if it was recorded.
fn write_memory(out: &mut TrackWriter<'_>, group: u64, device: DeviceId) -> io::Result<()> {
    let mut allocations = out.trace.allocations().filter(|allocation| allocation.device() == device).peekable();
    if allocations.peek().is_none() {
        return Ok(());
    }
    let bytes = CounterDescriptor { unit: Some(Unit::SizeBytes as i32), ..CounterDescriptor::default() };
    let mut sequence = out.counter(group, "memory in use".to_owned(), bytes)?;
    allocations.try_for_each(|allocation| sequence.count(&mut out.packets, allocation.at(), allocation.in_use() as f64))
}

/// Writes a track for each hardware counter.
fn write_counters(out: &mut TrackWriter<'_>, group: u64, device: DeviceId) -> io::Result<()> {
    let trace = out.trace;
    for counters in trace.gpu_counters().iter().filter(|counters| counters.device() == device) {
        for (index, metric) in counters.metrics().iter().enumerate() {
            let unit = match metric.unit() {
                "" => None,
                // As Perfetto writes it; the other units are the same.
                "By/s" => Some("B/s"),
                unit => Some(unit),
            };
            let counter = CounterDescriptor {
                unit_name: unit.map(str::to_owned),
                y_axis_share_key: unit.filter(|unit| *unit == "%").map(str::to_owned),
                ..CounterDescriptor::default()
            };
            let mut sequence = out.counter(group, metric.label().to_owned(), counter)?;
            // A sample is drawn from its start; after the last one, the value is unknown.
            for (time, values) in counters.samples() {
                // A ratio of events that did not happen is no number.
                if values[index].is_finite() {
                    sequence.count(&mut out.packets, time.start, values[index])?;
                }
            }
            sequence.finish(&mut out.packets)?;
        }
    }
    Ok(())
}

fn write_waits<'a>(
    out: &mut TrackWriter<'_>,
    parent: u64,
    name: &str,
    waits: impl Iterator<Item = Wait<'a>>,
) -> io::Result<()> {
    let waits = waits.map(|wait| {
        let event = move |sequence: &mut Sequence| {
            let mut event = sequence.named(category::WAIT, wait.kind().as_str());
            let numbers = [
                ("correlation", Some(wait.correlation())),
                ("context", Some(wait.context())),
                ("stream", wait.stream()),
                ("event", wait.event()),
            ];
            for (name, number) in numbers {
                if let Some(number) = number {
                    sequence.annotate(&mut event, name, &Value::U64(number.into()));
                }
            }
            sequence.annotate_cause(&mut event, wait.span(), wait.attribution());
            event
        };
        (wait.start(), wait.end(), event)
    });
    write_nested(out, parent, name, &waits.collect::<Vec<_>>())
}

/// Writes slices that come in any order, on as many tracks of this name as they need to nest.
fn write_nested<E: Fn(&mut Sequence) -> Event>(
    out: &mut TrackWriter<'_>,
    parent: u64,
    name: &str,
    slices: &[(Timestamp, Timestamp, E)],
) -> io::Result<()> {
    let mut nesting = Nesting::default();
    let mut rows: Vec<Sequence> = Vec::new();
    for index in nesting_order(slices.iter().map(|&(start, end, _)| (start, end))) {
        let (start, end, ref event) = slices[index];
        let row = nesting.place(start, end, 0);
        if row == rows.len() {
            rows.push(out.child(parent, name.to_owned())?);
        }
        let sequence = &mut rows[row];
        let event = event(sequence);
        sequence.slice(&mut out.packets, start, end, event)?;
    }
    rows.into_iter().try_for_each(|sequence| sequence.finish(&mut out.packets))
}

/// Writes the steps and spans of a stream, on separate tracks above it.
fn write_ranges(
    out: &mut TrackWriter<'_>,
    group: u64,
    name: &str,
    stream: StreamId,
    ranges: &[GpuRange],
) -> io::Result<()> {
    let first = ranges.partition_point(|range| range.stream < stream);
    let trace = out.trace;
    let mut rows: Vec<Option<Sequence>> = Vec::new();
    for range in ranges[first..].iter().take_while(|range| range.stream == stream) {
        rows.resize_with(rows.len().max(range.row + 1), || None);
        let row = &mut rows[range.row];
        let sequence = match row {
            Some(sequence) => sequence,
            None => row.insert(out.child(group, format!("{name} · steps and spans"))?),
        };
        let event = match range.cause {
            Cause::Step(step) => {
                let name = format!("ProfilerStep#{}", trace.steps()[step.index()].number());
                sequence.named(category::GPU_RANGE, &name)
            }
            Cause::Span(span) => {
                let span = trace.span(span);
                sequence.at_callsite(category::GPU_RANGE, span.callsite_id().index(), span.callsite())
            }
            Cause::Annotation(index) => {
                let name = trace.torch().and_then(|torch| torch.gpu_annotations.get(index)).map_or("", |it| &it.name);
                sequence.named(category::GPU_RANGE, name)
            }
        };
        sequence.slice(&mut out.packets, range.start, range.end, event)?;
    }
    rows.into_iter().flatten().try_for_each(|sequence| sequence.finish(&mut out.packets))
}

/// Writes the work of a stream.
fn write_work<'a>(
    out: &mut TrackWriter<'_>,
    mut sequence: Sequence,
    flows: &LaunchFlows,
    work: impl Iterator<Item = Work<'a>>,
) -> io::Result<()> {
    let mut events: Cache<WorkKey, Event> = Cache::default();
    let mut names = OperationNames::default();
    for work in work {
        let known = events.get_or_insert_with(WorkKey::of(work), || {
            let device = out.trace.device(work.stream().device());
            common_event(&mut sequence, work, device)
        });
        let mut event = sequence.copy(known);
        sequence.annotate(&mut event, "correlation", &Value::U64(work.correlation().into()));
        if work.kernel().is_none() {
            sequence.annotate(&mut event, "bytes", &Value::U64(work.bytes()));
        }
        if let Some(rate) = work.bytes_per_second() {
            sequence.annotate(&mut event, "bandwidth (GB/s)", &Value::F64(rate / 1e9));
        }
        if let Some(node) = work.graph() {
            sequence.annotate(&mut event, "graph", &Value::U64(node.graph.into()));
            sequence.annotate(&mut event, "graph node", &Value::U64(node.node));
        }
        sequence.annotate_cause(&mut event, work.span(), work.attribution());
        if let Some((operations, spans)) = names.of(work) {
            sequence.annotate_text(&mut event, "ops", operations);
            if let Some(spans) = spans {
                sequence.annotate_text(&mut event, "spans", spans);
            }
        }
        if flows.leads_to(work.id()) {
            event.end_flow(out.flow(work.id()));
        }
        sequence.slice(&mut out.packets, work.start(), work.end(), event)?;
    }
    sequence.finish(&mut out.packets)
}

/// Returns the name of a stream. Contexts may number their streams alike, and Perfetto merges tracks that share a name.
pub(super) fn stream_name(stream: &Stream, several_contexts: bool) -> String {
    match several_contexts {
        false => stream.label(),
        true => format!("{} · context {}", stream.label(), stream.context()),
    }
}

/// Returns the part of an event shared by all work with the same key.
fn common_event(sequence: &mut Sequence, work: Work<'_>, device: Option<&Device>) -> Event {
    let mut event = sequence.named(category::of_work(work), &work.name().to_string());
    let Some(kernel) = work.kernel() else { return event };
    let Kernel { grid, block, registers, static_shared_memory, dynamic_shared_memory, .. } = kernel;
    let mut annotate = |name, value| sequence.annotate(&mut event, name, &value);
    annotate("grid", Value::Str(format!("{grid:?}").into()));
    annotate("block", Value::Str(format!("{block:?}").into()));
    annotate("registers per thread", Value::U64((*registers).into()));
    let shared = u64::from(*static_shared_memory) + u64::from(*dynamic_shared_memory);
    annotate("shared memory", Value::U64(shared));
    if let Some(occupancy) = device.and_then(|device| device.occupancy(kernel)) {
        annotate("estimated occupancy %", Value::U64(occupancy.percent.round() as u64));
    }
    if kernel.raw_name != kernel.name {
        annotate("raw name", Value::Str(kernel.raw_name.clone()));
    }
    event
}
