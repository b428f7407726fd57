//! The table of `torch.profiler`'s `key_averages()`, of a trace that PyTorch has written.

use crate::trace::{Span, ThreadId, Timestamp, Trace};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// A row of [`key_averages`]: all events with one name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KeyAverage {
    /// The name of the operator, call, kernel or label.
    pub key: String,
    /// Whether the events are on a GPU: kernels, copies, and labels there.
    pub on_device: bool,
    /// Whether the events are labels, such as `record_function` makes.
    pub is_annotation: bool,
    /// The number of events.
    pub count: u64,
    /// The time on the host, with that of nested events.
    pub cpu_time: Duration,
    /// The time on the host, without that of nested events.
    pub self_cpu_time: Duration,
    /// The time of the kernels and copies that the events launched, with those of nested events.
    pub device_time: Duration,
    /// The time of the kernels and copies that the events launched themselves.
    pub self_device_time: Duration,
    /// Bytes of the host's memory that were allocated, less those that were freed.
    pub cpu_memory: i64,
    /// The same, without nested events.
    pub self_cpu_memory: i64,
    /// Bytes of GPUs' memory that were allocated, less those that were freed.
    pub device_memory: i64,
    /// The same, without nested events.
    pub self_device_memory: i64,
    /// Floating-point operations of the operators, where their shapes tell.
    pub flops: u64,
}

/// Returns the rows that `torch.profiler`'s `key_averages()` has for a trace that PyTorch has written, in their order.
///
/// They count otherwise than [`Averages`](super::Averages): calls of the API are rows and take their time from the
/// operator around them, kernels are rows, too, and an operator that calls one of its own name is one with it.
///
/// ```no_run
/// for trace in kernspan::read("torch.pt.trace.json.gz")? {
///     for row in kernspan::report::key_averages(&trace) {
///         println!("{} {} {:?}", row.key, row.count, row.self_cpu_time);
///     }
/// }
/// # Ok::<(), kernspan::read::ReadError>(())
/// ```
pub fn key_averages(trace: &Trace) -> Vec<KeyAverage> {
    let mut hosts = host_events(trace);
    nest(&mut hosts);
    let unclaimed = add_memory(trace, &mut hosts);
    merge_only_children(&mut hosts);
    let mut events = host_rows(&hosts);
    events.extend(device_rows(trace));
    events.extend(unclaimed);
    events.sort_by_key(|event| (event.start, Reverse(event.end)));
    let mut rows: Vec<KeyAverage> = Vec::new();
    let mut indices: FxHashMap<_, usize> = FxHashMap::default();
    for Event { row, .. } in events {
        let key = (row.key.clone(), row.on_device, row.is_annotation);
        let index = *indices.entry(key).or_insert_with(|| {
            rows.push(KeyAverage { key: row.key.clone(), ..row.identity() });
            rows.len() - 1
        });
        rows[index].add(&row);
    }
    rows
}

impl KeyAverage {
    /// The same row without any numbers.
    fn identity(&self) -> Self {
        Self { on_device: self.on_device, is_annotation: self.is_annotation, ..Self::default() }
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cpu_time += other.cpu_time;
        self.self_cpu_time += other.self_cpu_time;
        self.device_time += other.device_time;
        self.self_device_time += other.self_device_time;
        self.cpu_memory += other.cpu_memory;
        self.self_cpu_memory += other.self_cpu_memory;
        self.device_memory += other.device_memory;
        self.self_device_memory += other.self_device_memory;
        self.flops = self.flops.saturating_add(other.flops);
    }
}

/// Names that torch leaves out.
const LEFT_OUT: [&str; 7] = [
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "aten::is_leaf",
    "aten::output_nr",
    "aten::_version",
    "[OutOfMemory]",
];

/// An event, as a row of its own.
struct Event {
    start: Timestamp,
    end: Timestamp,
    row: KeyAverage,
}

/// An event of the host: a span or a call of the API.
struct HostEvent<'a> {
    name: &'a str,
    is_annotation: bool,
    thread: ThreadId,
    start: Timestamp,
    end: Timestamp,
    parent: Option<usize>,
    children: Vec<usize>,
    /// The time of the kernels and copies that belong to it.
    work: Duration,
    cpu_memory: i64,
    device_memory: i64,
    flops: u64,
    /// Whether its parent stands for it.
    is_merged: bool,
}

impl<'a> HostEvent<'a> {
    fn new(name: &'a str, thread: ThreadId, start: Timestamp, end: Timestamp) -> Self {
        Self {
            name,
            is_annotation: false,
            thread,
            start,
            end,
            parent: None,
            children: Vec::new(),
            work: Duration::ZERO,
            cpu_memory: 0,
            device_memory: 0,
            flops: 0,
            is_merged: false,
        }
    }

    fn duration(&self) -> Duration {
        self.end.since(self.start)
    }
}

fn is_operator(span: &Span<'_>) -> bool {
    span.callsite().target() == "cpu_op"
}

/// Returns the spans and the calls, thread by thread in the order of their starts.
fn host_events(trace: &Trace) -> Vec<HostEvent<'_>> {
    let mut work = vec![Duration::ZERO; trace.spans().len()];
    for item in trace.work() {
        // Work counts for operators only, not for the labels around them.
        if let Some(span) = item.span().filter(is_operator) {
            work[span.id().index()] += item.duration();
        }
    }
    // A call without an operator counts for the thread of the steps, whoever made it.
    let main = trace.steps().first().map(|step| trace.track(step.track_id()).thread());
    // Torch leaves Python's functions out.
    let spans = trace.spans().filter(|span| span.callsite().target() != "python_function").map(|span| {
        let event = HostEvent::new(span.name(), span.track().thread(), span.start(), span.end());
        let is_annotation = span.callsite().target() == "user_annotation";
        let flops = span.fields().op().flops().unwrap_or(0);
        HostEvent { is_annotation, work: work[span.id().index()], flops, ..event }
    });
    let calls = trace.api_calls().map(|call| {
        let operator = call.span().filter(is_operator);
        let thread = operator.map(|span| span.track().thread()).or(main).unwrap_or(call.thread());
        HostEvent::new(call.name(), thread, call.start(), call.end())
    });
    let mut events: Vec<_> = spans.chain(calls).filter(|event| !LEFT_OUT.contains(&event.name)).collect();
    events.sort_by_key(|event| (event.thread, event.start, Reverse(event.end)));
    events
}

/// Finds the parent of each event. An event that only overlaps another is not in it.
fn nest(events: &mut [HostEvent<'_>]) {
    let mut open: Vec<usize> = Vec::new();
    for index in 0..events.len() {
        let (thread, start, end) = (events[index].thread, events[index].start, events[index].end);
        let contains = |outer: &HostEvent<'_>| outer.thread == thread && start < outer.end && end <= outer.end;
        while open.pop_if(|outer| !contains(&events[*outer])).is_some() {}
        if let Some(&parent) = open.last() {
            events[parent].children.push(index);
            events[index].parent = Some(parent);
        }
        open.push(index);
    }
}

/// Adds each change of memory to all events that contain its time, on whatever thread. Returns those in none.
fn add_memory(trace: &Trace, events: &mut [HostEvent<'_>]) -> Vec<Event> {
    let on_device = trace.allocations().map(|allocation| (allocation.at(), allocation.delta(), true));
    let on_host = trace.host_allocations.iter().map(|allocation| (allocation.at, allocation.delta, false));
    let mut changes: Vec<_> = on_device.chain(on_host).collect();
    changes.sort_by_key(|&(at, ..)| at);
    // The sums up to each change, so that an interval's is one difference.
    let mut sums = vec![(0_i64, 0_i64)];
    let mut claims = vec![0_i64; changes.len() + 1];
    for &(_, delta, is_device) in &changes {
        let (cpu, device) = sums[sums.len() - 1];
        sums.push(if is_device { (cpu, device + delta) } else { (cpu + delta, device) });
    }
    for event in events {
        let first = changes.partition_point(|&(at, ..)| at < event.start);
        let last = changes.partition_point(|&(at, ..)| at <= event.end).max(first);
        event.cpu_memory = sums[last].0 - sums[first].0;
        event.device_memory = sums[last].1 - sums[first].1;
        claims[first] += 1;
        claims[last] -= 1;
    }
    let mut open = 0;
    let mut unclaimed = Vec::new();
    for (&(at, delta, is_device), change) in changes.iter().zip(claims) {
        open += change;
        if open == 0 {
            let (cpu_memory, device_memory) = if is_device { (0, delta) } else { (delta, 0) };
            let row = KeyAverage {
                key: "[memory]".to_owned(),
                count: 1,
                cpu_memory,
                self_cpu_memory: cpu_memory,
                device_memory,
                self_device_memory: device_memory,
                ..KeyAverage::default()
            };
            unclaimed.push(Event { start: at, end: at, row });
        }
    }
    unclaimed
}

/// Merges each only child that has its parent's name into the parent, until there are none.
fn merge_only_children(events: &mut [HostEvent<'_>]) {
    loop {
        let mut merged = false;
        for index in 0..events.len() {
            let Some(parent) = events[index].parent.filter(|_| !events[index].is_merged) else { continue };
            if events[parent].name == events[index].name && events[parent].children.len() == 1 {
                let children = std::mem::take(&mut events[index].children);
                children.iter().for_each(|&child| events[child].parent = Some(parent));
                events[parent].children = children;
                events[parent].work = events[index].work;
                events[index].is_merged = true;
                merged = true;
            }
        }
        if !merged {
            return;
        }
    }
}

fn host_rows(hosts: &[HostEvent<'_>]) -> Vec<Event> {
    // Children come after their parents.
    let mut device_times: Vec<_> = hosts.iter().map(|host| host.work).collect();
    for index in (0..hosts.len()).rev() {
        if let Some(parent) = hosts[index].parent.filter(|_| !hosts[index].is_merged) {
            let time = device_times[index];
            device_times[parent] += time;
        }
    }
    let alive = hosts.iter().enumerate().filter(|(_, host)| !host.is_merged);
    let row = |(index, host): (usize, &HostEvent<'_>)| {
        let children = || host.children.iter().map(|&child| &hosts[child]);
        let row = KeyAverage {
            key: host.name.to_owned(),
            on_device: false,
            is_annotation: host.is_annotation,
            count: 1,
            cpu_time: host.duration(),
            self_cpu_time: host.duration().saturating_sub(children().map(HostEvent::duration).sum()),
            device_time: device_times[index],
            self_device_time: host.work,
            cpu_memory: host.cpu_memory,
            self_cpu_memory: host.cpu_memory - children().map(|child| child.cpu_memory).sum::<i64>(),
            device_memory: host.device_memory,
            self_device_memory: host.device_memory - children().map(|child| child.device_memory).sum::<i64>(),
            flops: host.flops,
        };
        Event { start: host.start, end: host.end, row }
    };
    alive.map(row).collect()
}

fn device_rows(trace: &Trace) -> impl Iterator<Item = Event> {
    let row = |key: String, is_annotation, start: Timestamp, end: Timestamp| {
        let time = end.since(start);
        let (device_time, self_device_time) = (time, time);
        let row = KeyAverage {
            key,
            on_device: true,
            is_annotation,
            count: 1,
            device_time,
            self_device_time,
            ..KeyAverage::default()
        };
        Event { start, end, row }
    };
    let work = trace.work().map(move |work| row(work.name().to_string(), false, work.start(), work.end()));
    let annotations = trace.gpu_annotations.iter().map(move |label| {
        // The exporter widened each by a nanosecond at both ends.
        let (start, end) = (label.start.as_unix_nanos() + 1, label.end.as_unix_nanos().saturating_sub(1));
        let name = if label.name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { &label.name };
        row(name.to_owned(), true, Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end))
    });
    work.chain(annotations)
}
