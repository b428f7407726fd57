//! Metrics of recorded windows.

use super::{
    encode::Writer,
    histogram::{Histogram, KERNEL_BOUNDS},
    instruments::{self, Instrument},
};
use crate::attributes::name;
use kernspan::{
    analysis::{Analysis, CounterValue},
    trace::{Api, Detail, DeviceId, Direction, GpuMetric, Losses, MemoryChange, MetricMeaning},
};
use std::collections::BTreeMap;

/// The windows so far. A metric is sent once it has a value, since its activity may not be recorded.
#[derive(Debug)]
pub(super) struct Windows {
    launches: u64,
    graph_launches: u64,
    copies: BTreeMap<Direction, Copies>,
    allocations: u64,
    kernels: Histogram,
    gpus: BTreeMap<DeviceId, LastStep>,
    losses: Losses,
}

#[derive(Clone, Copy, Debug, Default)]
struct Copies {
    count: u64,
    bytes: u64,
}

/// The last whole step of a GPU.
#[derive(Debug)]
struct LastStep {
    /// The GPU's id.
    hardware: String,
    /// From 0 to 1.
    busy: f64,
    peak_memory: Option<u64>,
    counters: Vec<CounterValue>,
}

/// The gauges of hardware counters: the unit of their metrics, and the factor from it to the gauge's own.
const COUNTERS: [(Instrument, &str, f64); 4] = [
    (instruments::GPU_COUNTER_UTILIZATION, "%", 0.01),
    (instruments::GPU_COUNTER_THROUGHPUT, "By/s", 1.0),
    (instruments::GPU_COUNTER_FREQUENCY, "Hz", 1.0),
    (instruments::GPU_COUNTER_VALUE, "", 1.0),
];

impl Windows {
    pub(super) fn new() -> Self {
        Self {
            launches: 0,
            graph_launches: 0,
            copies: BTreeMap::new(),
            allocations: 0,
            kernels: Histogram::new(KERNEL_BOUNDS),
            gpus: BTreeMap::new(),
            losses: Losses::default(),
        }
    }

    pub(super) fn add(&mut self, window: &Analysis<'_>) {
        let trace = window.trace();
        // Each launch through the runtime is also a call to the driver.
        for call in trace.api_calls().filter(|call| call.api() == Api::CudaDriver) {
            let starts = |prefix| call.name().starts_with(prefix);
            self.launches += u64::from(starts("cuLaunchKernel") || starts("cuLaunchCooperative"));
            self.graph_launches += u64::from(starts("cuGraphLaunch"));
        }
        for work in trace.work() {
            match work.detail() {
                Detail::Kernel(_) => self.kernels.add(work.duration().as_secs_f64()),
                Detail::Copy(copy) => {
                    let copies = self.copies.entry(copy.direction).or_default();
                    copies.count += 1;
                    copies.bytes = copies.bytes.saturating_add(copy.bytes);
                }
                _ => {}
            }
        }
        let allocations = trace.allocations().filter(|allocation| allocation.change() == MemoryChange::Allocate);
        self.allocations += allocations.count() as u64;
        // They are in chronological order, so the last one stays.
        for gpu in window.gpu_steps() {
            let known = trace.device(gpu.device).filter(|device| !device.uuid.is_empty());
            let hardware = known.map_or_else(|| gpu.device.as_u32().to_string(), |device| device.uuid.clone());
            let busy = gpu.usage.busy_percent() / 100.0;
            let counters = window.step_counters(gpu).map(|counters| counters.values.clone()).unwrap_or_default();
            self.gpus.insert(gpu.device, LastStep { hardware, busy, peak_memory: gpu.peak_memory, counters });
        }
        self.losses += *trace.losses();
    }

    /// Writes the metrics. `dropped_counters` is the number of counter values that were dropped in steps.
    pub(super) fn write(&mut self, dropped_counters: u64, writer: &mut Writer<'_>) {
        let counts = [
            (instruments::LAUNCHES, self.launches),
            (instruments::GRAPH_LAUNCHES, self.graph_launches),
            (instruments::ALLOCATIONS, self.allocations),
        ];
        for (instrument, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
            writer.metric(&instrument, |points| points.number(&[], count));
        }
        writer.metric(&instruments::COPIES, |points| {
            for (kind, copies) in &self.copies {
                points.number(&[(name::COPY_KIND, kind.as_str())], copies.count);
            }
        });
        writer.metric(&instruments::COPIED, |points| {
            for (kind, copies) in &self.copies {
                points.number(&[(name::COPY_KIND, kind.as_str())], copies.bytes);
            }
        });
        writer.metric(&instruments::KERNEL_DURATION, |points| points.histogram(&[], &mut self.kernels));
        writer.metric(&instruments::GPU_BUSY, |points| {
            for gpu in self.gpus.values() {
                points.number(&[(name::HARDWARE, &gpu.hardware)], gpu.busy);
            }
        });
        writer.metric(&instruments::GPU_PEAK, |points| {
            for (gpu, bytes) in self.gpus.values().filter_map(|gpu| gpu.peak_memory.map(|bytes| (gpu, bytes))) {
                points.number(&[(name::HARDWARE, &gpu.hardware)], bytes);
            }
        });
        for (instrument, unit, factor) in COUNTERS {
            writer.metric(&instrument, |points| {
                for gpu in self.gpus.values() {
                    for value in gpu.counters.iter().filter(|value| value.metric.unit() == unit) {
                        let counter = (instruments::COUNTER_NAME, counter_name(&value.metric));
                        points.number(&[(name::HARDWARE, &gpu.hardware), counter], factor * value.mean);
                    }
                }
            });
        }
        writer.metric(&instruments::LOST, |points| {
            let causes = self.losses.causes().chain([("counter_names", dropped_counters)]);
            for (cause, count) in causes.filter(|&(_, count)| count > 0) {
                points.number(&[(instruments::CAUSE, cause)], count);
            }
        });
    }
}

/// Returns the name of a hardware counter: that of NVIDIA if the program named the metric.
fn counter_name(metric: &GpuMetric) -> &str {
    match metric.meaning() {
        MetricMeaning::Custom => metric.name(),
        meaning => meaning.as_str(),
    }
}
