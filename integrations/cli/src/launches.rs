//! The tables of `report --launches` and `report --streams`: what launches cost, and why streams were idle.

use crate::{input::Read, json::json, output::Section};
use kernspan::{
    analysis::{Launch, launches, queue_lengths, stream_idle},
    report::{Table, units},
    trace::DeviceId,
};
use serde::Serialize;
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// All launches by one API function.
#[derive(Serialize)]
struct FunctionLaunches<'a> {
    function: &'a str,
    launches: u64,
    /// Kernels, copies and fills: more than launches, if there are graphs.
    pieces: u64,
    /// The host time of the calls.
    host: Duration,
    longest: Duration,
    /// The GPU time of the work.
    gpu: Duration,
    /// The median time from the return of a call to the start of its work.
    median_delay: Duration,
    /// Launches that took longer than their work.
    short: u64,
}

/// What a stream did, over all windows.
#[derive(Default, Serialize)]
struct StreamTimes {
    device: DeviceId,
    context: u32,
    stream: u32,
    /// Gaps before work that the host requested too late.
    host_wait: Duration,
    /// Gaps due to the time it takes to start the next kernel.
    kernel_wait: Duration,
    /// Other gaps, such as those before work that waits for another stream.
    other: Duration,
    /// The largest number of pieces of work queued at once.
    longest_queue: u64,
    /// The mean queue length over time.
    mean_queue: f64,
    #[serde(skip)]
    windows: u32,
}

/// Returns the table of launches by function, those with the most host time first.
pub(crate) fn launch_section(read: &Read, limit: usize) -> Section {
    let mut by_function: BTreeMap<&str, Vec<Launch<'_>>> = BTreeMap::new();
    for launch in read.traces().flat_map(launches) {
        by_function.entry(launch.function).or_default().push(launch);
    }
    let mut rows: Vec<_> = by_function.into_iter().map(|(name, of)| FunctionLaunches::new(name, &of)).collect();
    rows.sort_by_key(|row| Reverse(row.host));
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Launches".to_owned(),
        key: "launches",
        table: (!rows.is_empty()).then(|| launch_table(&rows).left_out(left_out)),
        empty: "no launches were recorded",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

impl<'a> FunctionLaunches<'a> {
    fn new(function: &'a str, launches: &[Launch<'_>]) -> Self {
        let mut delays: Vec<_> = launches.iter().map(|launch| launch.delay).collect();
        delays.sort_unstable();
        Self {
            function,
            launches: launches.len() as u64,
            pieces: launches.iter().map(|launch| launch.pieces).sum(),
            host: launches.iter().map(|launch| launch.host).sum(),
            longest: launches.iter().map(|launch| launch.host).max().unwrap_or_default(),
            gpu: launches.iter().map(|launch| launch.gpu).sum(),
            median_delay: delays.get(delays.len() / 2).copied().unwrap_or_default(),
            short: launches.iter().filter(|launch| launch.is_short()).count() as u64,
        }
    }
}

fn launch_table(rows: &[FunctionLaunches<'_>]) -> Table {
    let mut table = Table::default();
    table.text("Function", rows, |row| row.function.to_owned());
    table.number("# of Calls", rows, |row| row.launches.to_string());
    table.number("Work", rows, |row| row.pieces.to_string()).droppable(2);
    table.number("Host total", rows, |row| units::column_time(row.host));
    table.number("Average", rows, |row| units::column_time(row.host.div_f64(row.launches.max(1) as f64))).droppable(4);
    table.number("Longest", rows, |row| units::column_time(row.longest)).droppable(1);
    table.number("CUDA total", rows, |row| units::column_time(row.gpu));
    table.number("Median delay", rows, |row| units::column_time(row.median_delay)).droppable(3);
    table.number("Longer than work", rows, |row| row.short.to_string());
    table
}

/// Returns the table of streams, in numeric order.
pub(crate) fn stream_section(read: &Read, limit: usize) -> Section {
    let mut streams: BTreeMap<(DeviceId, u32, u32), StreamTimes> = BTreeMap::new();
    for trace in read.traces() {
        for (idle, queue) in stream_idle(trace).into_iter().zip(queue_lengths(trace)) {
            let (device, context, stream) = (idle.device, idle.context, idle.stream);
            let times = streams.entry((device, context, stream)).or_default();
            (times.device, times.context, times.stream) = (device, context, stream);
            times.host_wait += idle.host_wait;
            times.kernel_wait += idle.kernel_wait;
            times.other += idle.other;
            times.longest_queue = times.longest_queue.max(queue.longest());
            times.windows += 1;
            times.mean_queue += (queue.mean() - times.mean_queue) / f64::from(times.windows);
        }
    }
    let mut rows: Vec<_> = streams.into_values().collect();
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    Section {
        title: "Streams".to_owned(),
        key: "streams",
        table: (!rows.is_empty()).then(|| stream_table(&rows).left_out(left_out)),
        empty: "no GPU work was recorded",
        rows: rows.iter().map(json).collect(),
        ..Section::default()
    }
}

fn stream_table(rows: &[StreamTimes]) -> Table {
    let mut table = Table::default();
    table.number("GPU", rows, |row| row.device.to_string());
    table.number("Context", rows, |row| row.context.to_string()).droppable(1);
    table.number("Stream", rows, |row| row.stream.to_string());
    table.number("Idle", rows, |row| units::column_time(row.host_wait + row.kernel_wait + row.other));
    table.number("For the host", rows, |row| units::column_time(row.host_wait));
    table.number("Between kernels", rows, |row| units::column_time(row.kernel_wait));
    table.number("Other", rows, |row| units::column_time(row.other));
    table.number("Mean queue", rows, |row| format!("{:.1}", row.mean_queue)).droppable(2);
    table.number("Longest queue", rows, |row| row.longest_queue.to_string());
    table
}
