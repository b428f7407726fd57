//! The table of `torch.profiler`'s `key_averages()`, of a trace that PyTorch has written.

use super::key_rows::{KeyAverage, KeyRows};
use crate::{
    gallop_search::GallopSearch,
    trace::{Callsite, Detail, Timestamp, Trace, Track, convention},
};
use std::{borrow::Cow, cmp::Reverse, time::Duration};

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
    let mut rows = KeyRows::default();
    let sites = sites(trace, &mut rows);
    let mut work = own_work(trace, &sites);
    let mut hosts = host_events(trace, &sites, &mut rows);
    nest(&mut hosts);
    let (memory, unclaimed) = memory(trace, &hosts);
    merge_only_children(&mut hosts, &mut work);
    add_hosts(trace, &sites, &hosts, &work, &memory, &mut rows);
    add_work(trace, &mut rows);
    for (at, cpu_memory, device_memory) in unclaimed {
        let row = KeyAverage { count: 1, ..KeyAverage::of_memory([cpu_memory, device_memory], [0, 0]) };
        let name = rows.name("[memory]");
        rows.add(name, at, at, &row);
    }
    rows.into_rows()
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

/// The part of a span that its callsite tells.
struct Site {
    name: u32,
    is_left_out: bool,
    is_operator: bool,
    is_annotation: bool,
    /// Whether spans may state floating-point operations.
    has_flops: bool,
}

/// An event of the host: a span or a call of the API.
struct HostEvent {
    start: Timestamp,
    end: Timestamp,
    /// The thread, in the order of their numbers.
    thread: u32,
    name: u32,
    /// The index of the span, or the number of spans and the index of the call.
    source: u32,
    /// The event around it, or the one that stands for that.
    parent: Option<u32>,
    children: u32,
    /// Whether its parent stands for it.
    is_merged: bool,
}

impl HostEvent {
    fn nanos(&self) -> u64 {
        nanos(self.start, self.end)
    }
}

fn nanos(start: Timestamp, end: Timestamp) -> u64 {
    end.as_unix_nanos().saturating_sub(start.as_unix_nanos())
}

/// Returns an index as a number of half the size. Ids of a trace are that large at most.
fn small(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Returns what each callsite tells of its spans.
fn sites<'a>(trace: &'a Trace, rows: &mut KeyRows<'a>) -> Vec<Site> {
    let site = |site: &'a Callsite| Site {
        name: rows.name(site.name()),
        // Torch leaves Python's functions out.
        is_left_out: site.target() == "python_function" || LEFT_OUT.contains(&site.name()),
        is_operator: site.target() == "cpu_op",
        is_annotation: site.target() == "user_annotation",
        has_flops: site.field_names().any(|name| name == convention::FLOPS),
    };
    trace.callsites().iter().map(site).collect()
}

/// Returns the nanoseconds of the kernels and copies that belong to each span, and room for each call.
fn own_work(trace: &Trace, sites: &[Site]) -> Vec<u64> {
    let mut work = vec![0_u64; trace.spans().len() + trace.api_calls().len()];
    for item in trace.work() {
        // Work counts for operators only, not for the labels around them.
        if let Some(span) = item.span().filter(|span| sites[span.callsite_id().index()].is_operator) {
            let work = &mut work[span.id().index()];
            *work = work.saturating_add(nanos(item.start(), item.end()));
        }
    }
    work
}

/// Returns the spans and the calls, thread by thread in the order of their starts.
fn host_events<'a>(trace: &'a Trace, sites: &[Site], rows: &mut KeyRows<'a>) -> Vec<HostEvent> {
    let mut threads: Vec<_> = trace.tracks().iter().map(Track::thread).collect();
    threads.sort_unstable();
    threads.dedup();
    let number = |thread| small(threads.binary_search(&thread).unwrap_or(0));
    let of_tracks: Vec<_> = trace.tracks().iter().map(|track| number(track.thread())).collect();
    // A call without an operator counts for the thread of the steps, whoever made it.
    let main = trace.steps().first().map(|step| of_tracks[step.track_id().index()]);
    let event = |start, end, thread, name, source: usize| {
        let source = small(source);
        HostEvent { start, end, thread, name, source, parent: None, children: 0, is_merged: false }
    };
    let mut events = Vec::with_capacity(trace.spans().len() + trace.api_calls().len());
    for span in trace.spans() {
        let site = &sites[span.callsite_id().index()];
        if !site.is_left_out {
            let thread = of_tracks[span.track_id().index()];
            events.push(event(span.start(), span.end(), thread, site.name, span.id().index()));
        }
    }
    for (index, call) in trace.api_calls().enumerate() {
        let operator = call.span().filter(|span| sites[span.callsite_id().index()].is_operator);
        let thread = operator.map(|span| of_tracks[span.track_id().index()]).or(main);
        let thread = thread.unwrap_or_else(|| number(call.thread()));
        if !LEFT_OUT.contains(&call.name()) {
            events.push(event(call.start(), call.end(), thread, rows.name(call.name()), trace.spans().len() + index));
        }
    }
    // Spans and calls are nearly in this order already, which makes a stable sort quick.
    events.sort_by_key(|event| (event.thread, event.start, Reverse(event.end)));
    events
}

/// Finds the parent of each event. An event that only overlaps another is not in it.
fn nest(events: &mut [HostEvent]) {
    let mut open: Vec<u32> = Vec::new();
    for index in 0..events.len() {
        let HostEvent { thread, start, end, .. } = events[index];
        let contains = |outer: &HostEvent| outer.thread == thread && start < outer.end && end <= outer.end;
        while open.pop_if(|outer| !contains(&events[*outer as usize])).is_some() {}
        events[index].parent = open.last().copied();
        if let Some(&parent) = open.last() {
            events[parent as usize].children += 1;
        }
        open.push(small(index));
    }
}

/// Bytes on the host and on GPUs that were allocated, less those that were freed.
type Bytes = [i64; 2];

fn add([cpu, device]: Bytes, [more_cpu, more_device]: Bytes) -> Bytes {
    [cpu.wrapping_add(more_cpu), device.wrapping_add(more_device)]
}

/// Adds each change of memory to all events that contain its time, on whatever thread. Returns the changes in each
/// event, none at all if there are none, and the changes in no event.
fn memory(trace: &Trace, events: &[HostEvent]) -> (Vec<Bytes>, Vec<(Timestamp, i64, i64)>) {
    let on_device = trace.allocations().map(|allocation| (allocation.at(), [0, allocation.delta()]));
    let on_host = trace
        .torch()
        .into_iter()
        .flat_map(|torch| &torch.host_allocations)
        .map(|allocation| (allocation.at, [allocation.delta, 0]));
    let mut changes: Vec<_> = on_device.chain(on_host).collect();
    if changes.is_empty() {
        return Default::default();
    }
    changes.sort_by_key(|&(at, _)| at);
    // The sums up to each change, so that an interval's is one difference.
    let mut sums = vec![[0, 0]];
    sums.extend(changes.iter().scan([0, 0], |sum, &(_, bytes)| {
        *sum = add(*sum, bytes);
        Some(*sum)
    }));
    let mut claims = vec![0_i64; changes.len() + 1];
    let (mut starts, mut ends) = (GallopSearch::default(), GallopSearch::default());
    let of_event = |event: &HostEvent| {
        let first = starts.count_before(&changes, |&(at, _)| at < event.start);
        let last = ends.count_before(&changes, |&(at, _)| at <= event.end).max(first);
        claims[first] += 1;
        claims[last] -= 1;
        let ([cpu, device], [cpu_before, device_before]) = (sums[last], sums[first]);
        [cpu.wrapping_sub(cpu_before), device.wrapping_sub(device_before)]
    };
    let memory = events.iter().map(of_event).collect();
    let mut open = 0;
    let unclaimed = changes.iter().zip(claims).filter_map(|(&(at, [cpu, device]), change)| {
        open += change;
        (open == 0).then_some((at, cpu, device))
    });
    (memory, unclaimed.collect())
}

/// Merges each only child that has its parent's name into the parent, and so on with its own only child.
fn merge_only_children(events: &mut [HostEvent], work: &mut [u64]) {
    // Parents come before their children, so that one pass is enough.
    for index in 0..events.len() {
        let Some(around) = events[index].parent else { continue };
        // The one that stands for a merged event is not merged itself.
        let parent = match &events[around as usize] {
            merged if merged.is_merged => merged.parent.unwrap_or(around),
            _ => around,
        };
        events[index].parent = Some(parent);
        let parent = parent as usize;
        if events[parent].name == events[index].name && events[parent].children == 1 {
            events[parent].children = events[index].children;
            work[events[parent].source as usize] = work[events[index].source as usize];
            events[index].is_merged = true;
        }
    }
}

/// Adds the events of the host to their rows. Memory is empty if there are no changes.
fn add_hosts(
    trace: &Trace,
    sites: &[Site],
    hosts: &[HostEvent],
    work: &[u64],
    memory: &[Bytes],
    rows: &mut KeyRows<'_>,
) {
    let of = |memory: &[Bytes], index: usize| memory.get(index).copied().unwrap_or_default();
    let mut device_times: Vec<_> = hosts.iter().map(|host| work[host.source as usize]).collect();
    let mut nested_times = vec![0_u64; hosts.len()];
    let mut nested_memory: Vec<Bytes> = vec![[0, 0]; memory.len()];
    // Children come after their parents.
    for (index, host) in hosts.iter().enumerate().rev() {
        if let Some(parent) = host.parent.filter(|_| !host.is_merged) {
            let parent = parent as usize;
            device_times[parent] = device_times[parent].saturating_add(device_times[index]);
            nested_times[parent] = nested_times[parent].saturating_add(host.nanos());
            if let Some(nested) = nested_memory.get_mut(parent) {
                *nested = add(*nested, of(memory, index));
            }
        }
    }
    for (index, host) in hosts.iter().enumerate().filter(|(_, host)| !host.is_merged) {
        let span = trace.spans_at(host.source as usize..trace.spans().len()).next();
        let site = span.map(|span| &sites[span.callsite_id().index()]);
        let flops = span.filter(|_| site.is_some_and(|site| site.has_flops)).and_then(|it| it.fields().op().flops());
        let row = KeyAverage {
            is_annotation: site.is_some_and(|site| site.is_annotation),
            count: 1,
            cpu_time: Duration::from_nanos(host.nanos()),
            self_cpu_time: Duration::from_nanos(host.nanos().saturating_sub(nested_times[index])),
            device_time: Duration::from_nanos(device_times[index]),
            self_device_time: Duration::from_nanos(work[host.source as usize]),
            flops: flops.unwrap_or(0),
            ..KeyAverage::of_memory(of(memory, index), of(&nested_memory, index))
        };
        rows.add(host.name, host.start, host.end, &row);
    }
}

/// Adds kernels, copies and labels on GPUs to their rows.
fn add_work<'a>(trace: &'a Trace, rows: &mut KeyRows<'a>) {
    let row = |is_annotation, start, end| {
        let time = Duration::from_nanos(nanos(start, end));
        let (device_time, self_device_time) = (time, time);
        KeyAverage { on_device: true, is_annotation, count: 1, device_time, self_device_time, ..KeyAverage::default() }
    };
    for work in trace.work() {
        let name = match work.detail() {
            Detail::Kernel(kernel) => rows.name(&kernel.name),
            _ => rows.name_of(Cow::Owned(work.name().to_string())),
        };
        rows.add(name, work.start(), work.end(), &row(false, work.start(), work.end()));
    }
    for label in trace.torch().into_iter().flat_map(|torch| &torch.gpu_annotations) {
        // PyTorch's exporter widened each by a nanosecond at both ends.
        let (start, end) = (label.start.as_unix_nanos() + 1, label.end.as_unix_nanos().saturating_sub(1));
        let (start, end) = (Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end));
        let name = if label.name.starts_with("ProfilerStep#") { "ProfilerStep*" } else { &label.name };
        let name = rows.name(name);
        rows.add(name, start, end, &row(true, start, end));
    }
}
