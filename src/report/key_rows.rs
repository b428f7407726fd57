//! The rows of torch's table, and their sums while it is made.

use crate::trace::{NameKey, Timestamp};
use rustc_hash::FxHashMap;
use std::{borrow::Cow, cmp::Reverse, time::Duration};

/// A row of [`key_averages`](super::key_averages()): all events with one name.
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

/// The rows of [`key_averages`](super::key_averages()), by name, place and kind.
#[derive(Debug, Default)]
pub(super) struct KeyRows<'a> {
    names: FxHashMap<Cow<'a, str>, u32>,
    keys: FxHashMap<NameKey, u32>,
    /// The rows of each name: those on the host and on GPUs, each without and with annotations.
    rows: Vec<[KeyRow; 4]>,
    /// The number of events so far.
    count: usize,
}

#[derive(Debug, Default)]
struct KeyRow {
    /// The start, the end and the number of the event that comes first.
    first: Option<(Timestamp, Reverse<Timestamp>, usize)>,
    sum: KeyAverage,
}

impl KeyAverage {
    /// A row of bytes on the host and on GPUs, of which some belong to nested events.
    pub(super) fn of_memory([cpu, device]: [i64; 2], [nested_cpu, nested_device]: [i64; 2]) -> Self {
        Self {
            cpu_memory: cpu,
            self_cpu_memory: cpu.wrapping_sub(nested_cpu),
            device_memory: device,
            self_device_memory: device.wrapping_sub(nested_device),
            ..Self::default()
        }
    }

    /// Adds the numbers of another row.
    pub(super) fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.cpu_time += other.cpu_time;
        self.self_cpu_time += other.self_cpu_time;
        self.device_time += other.device_time;
        self.self_device_time += other.self_device_time;
        self.cpu_memory = self.cpu_memory.wrapping_add(other.cpu_memory);
        self.self_cpu_memory = self.self_cpu_memory.wrapping_add(other.self_cpu_memory);
        self.device_memory = self.device_memory.wrapping_add(other.device_memory);
        self.self_device_memory = self.self_device_memory.wrapping_add(other.self_device_memory);
        self.flops = self.flops.saturating_add(other.flops);
    }
}

impl<'a> KeyRows<'a> {
    /// Returns the number of a name. Its text must stay where it is.
    pub(super) fn name(&mut self, name: &'a str) -> u32 {
        let key = NameKey::of(name);
        if let Some(&number) = self.keys.get(&key) {
            return number;
        }
        let number = self.name_of(Cow::Borrowed(name));
        self.keys.insert(key, number);
        number
    }

    /// Returns the number of a name that may be stored nowhere else.
    pub(super) fn name_of(&mut self, name: Cow<'a, str>) -> u32 {
        *self.names.entry(name).or_insert_with(|| {
            self.rows.push(Default::default());
            u32::try_from(self.rows.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Adds an event to the row of this name. `row` says which of its rows.
    pub(super) fn add(&mut self, name: u32, start: Timestamp, end: Timestamp, row: &KeyAverage) {
        let kind = usize::from(row.on_device) * 2 + usize::from(row.is_annotation);
        let KeyRow { first, sum } = &mut self.rows[name as usize][kind];
        let place = (start, Reverse(end), self.count);
        *first = Some(first.map_or(place, |first| first.min(place)));
        (sum.on_device, sum.is_annotation) = (row.on_device, row.is_annotation);
        sum.add(row);
        self.count += 1;
    }

    /// Returns the rows in the order of their first events.
    pub(super) fn into_rows(self) -> Vec<KeyAverage> {
        let Self { names, mut rows, .. } = self;
        let mut sorted = Vec::new();
        for (name, number) in names {
            let of_name = std::mem::take(&mut rows[number as usize]);
            let named = |row: KeyRow| Some((row.first?, KeyAverage { key: name.to_string(), ..row.sum }));
            sorted.extend(of_name.into_iter().filter_map(named));
        }
        sorted.sort_unstable_by_key(|&(first, _)| first);
        sorted.into_iter().map(|(_, row)| row).collect()
    }
}
