//! A row of torch's table.

use std::time::Duration;

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
