//! The table of `torch.profiler`'s `key_averages()`.

use crate::{json::json, output::Section, sort::Sort};
use kernspan::{
    Trace,
    report::{KeyAverage, Table, key_averages, units},
};
use std::{cmp::Reverse, collections::HashMap, time::Duration};

/// A row, with the totals from which shares are computed.
struct Row {
    row: KeyAverage,
    all_cpu: Duration,
    all_device: Duration,
}

/// Returns the table of these traces combined, in torch's order or sorted.
pub(crate) fn section<'a>(traces: impl Iterator<Item = &'a Trace>, sort: Option<Sort>, limit: usize) -> Section {
    let mut rows = rows(traces);
    let all_cpu: Duration = rows.iter().map(|row| row.self_cpu_time).sum();
    let on_device = |row: &&KeyAverage| row.on_device && !row.is_annotation;
    let all_device: Duration = rows.iter().filter(on_device).map(|row| row.self_device_time).sum();
    if let Some(sort) = sort {
        self::sort(&mut rows, sort);
    }
    let left_out = rows.len().saturating_sub(limit);
    rows.truncate(limit);
    let json = rows.iter().map(json).collect();
    let rows: Vec<_> = rows.into_iter().map(|row| Row { row, all_cpu, all_device }).collect();
    let footer = |name, time| format!("Self {name} time total: {}\n", self::time(time));
    let mut below = footer("CPU", all_cpu);
    if !all_device.is_zero() {
        below += &footer("CUDA", all_device);
    }
    Section {
        title: "key_averages()".to_owned(),
        key: "key_averages",
        table: (!rows.is_empty()).then(|| table(&rows).left_out(left_out)),
        empty: "no spans were recorded",
        rows: json,
        members: vec![
            ("self_cpu_time_total", crate::json::json(&all_cpu)),
            ("self_device_time_total", crate::json::json(&all_device)),
        ],
        below,
        ..Section::default()
    }
}

/// Adds up the rows of several traces.
fn rows<'a>(traces: impl Iterator<Item = &'a Trace>) -> Vec<KeyAverage> {
    let mut rows: Vec<KeyAverage> = Vec::new();
    let mut indices: HashMap<_, usize> = HashMap::new();
    for row in traces.flat_map(key_averages) {
        let key = (row.key.clone(), row.on_device, row.is_annotation);
        if let Some(&index) = indices.get(&key) {
            let sum = &mut rows[index];
            sum.count += row.count;
            sum.cpu_time += row.cpu_time;
            sum.self_cpu_time += row.self_cpu_time;
            sum.device_time += row.device_time;
            sum.self_device_time += row.self_device_time;
            sum.cpu_memory += row.cpu_memory;
            sum.self_cpu_memory += row.self_cpu_memory;
            sum.device_memory += row.device_memory;
            sum.self_device_memory += row.self_device_memory;
            sum.flops = sum.flops.saturating_add(row.flops);
        } else {
            indices.insert(key, rows.len());
            rows.push(row);
        }
    }
    rows
}

fn sort(rows: &mut [KeyAverage], sort: Sort) {
    match sort {
        Sort::Total => rows.sort_by_key(|row| Reverse(row.cpu_time)),
        Sort::Own => rows.sort_by_key(|row| Reverse(row.self_cpu_time)),
        Sort::Average => rows.sort_by_key(|row| Reverse(mean(row.cpu_time, row.count))),
        Sort::Calls => rows.sort_by_key(|row| Reverse(row.count)),
        Sort::Flops => rows.sort_by_key(|row| Reverse(row.flops)),
        Sort::TotalGpu => rows.sort_by_key(|row| Reverse(row.device_time)),
        Sort::SelfGpu => rows.sort_by_key(|row| Reverse(row.self_device_time)),
        Sort::GpuMemory => rows.sort_by_key(|row| Reverse(row.device_memory)),
        Sort::Name => rows.sort_by(|a, b| a.key.cmp(&b.key)),
    }
}

/// Returns the table with torch's titles, without all-zero columns.
fn table(rows: &[Row]) -> Table {
    let any = |is_used: fn(&KeyAverage) -> bool| rows.iter().any(|row| is_used(&row.row));
    let mut table = Table::default();
    table.text("Name", rows, |it| it.row.key.clone());
    if any(|row| !row.cpu_time.is_zero()) {
        table.number("Self CPU %", rows, |it| share(it.row.self_cpu_time, it.all_cpu)).droppable(3);
        table.number("Self CPU", rows, |it| time(it.row.self_cpu_time)).droppable(13);
        table.number("CPU total %", rows, |it| share(it.row.cpu_time, it.all_cpu)).droppable(2);
        table.number("CPU total", rows, |it| time(it.row.cpu_time));
        table.number("CPU time avg", rows, |it| time(mean(it.row.cpu_time, it.row.count))).droppable(5);
    }
    if any(|row| !row.device_time.is_zero()) {
        table.number("Self CUDA", rows, |it| time(it.row.self_device_time)).droppable(14);
        table.number("Self CUDA %", rows, |it| share(it.row.self_device_time, it.all_device)).droppable(6);
        table.number("CUDA total", rows, |it| time(it.row.device_time));
        table.number("CUDA time avg", rows, |it| time(mean(it.row.device_time, it.row.count))).droppable(4);
    }
    if any(|row| row.cpu_memory != 0) {
        table.number("CPU Mem", rows, |it| memory(it.row.cpu_memory)).droppable(8);
    }
    if any(|row| row.self_cpu_memory != 0) {
        table.number("Self CPU Mem", rows, |it| memory(it.row.self_cpu_memory)).droppable(7);
    }
    if any(|row| row.device_memory != 0) {
        table.number("CUDA Mem", rows, |it| memory(it.row.device_memory)).droppable(10);
    }
    if any(|row| row.self_device_memory != 0) {
        table.number("Self CUDA Mem", rows, |it| memory(it.row.self_device_memory)).droppable(9);
    }
    table.number("# of Calls", rows, |it| it.row.count.to_string());
    table.number("Total FLOPs", rows, |it| units::flops(it.row.flops)).droppable(11);
    table
}

/// Formats a time as torch does.
fn time(time: Duration) -> String {
    units::column_time(time).replace('µ', "u").replace(' ', "")
}

/// Formats an amount of memory as torch does.
fn memory(bytes: i64) -> String {
    let (scaled, unit) = match bytes.unsigned_abs() {
        0x4000_0000.. => (bytes as f64 / 1_073_741_824.0, "GB"),
        0x10_0000.. => (bytes as f64 / 1_048_576.0, "MB"),
        0x400.. => (bytes as f64 / 1024.0, "KB"),
        _ => return format!("{bytes} B"),
    };
    format!("{scaled:.2} {unit}")
}

fn share(time: Duration, all: Duration) -> Option<String> {
    (!all.is_zero()).then(|| format!("{:.2}%", 100.0 * time.as_secs_f64() / all.as_secs_f64()))
}

fn mean(time: Duration, count: u64) -> Duration {
    time.div_f64(count.max(1) as f64)
}
