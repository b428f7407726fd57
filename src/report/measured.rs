use crate::analysis::{Flops, SpanFlops};
use crate::trace::{Allocation, MemoryChange, Span, Trace, Work};
use std::time::Duration;

/// What is added up of spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) calls: u64,
    pub(super) total: Duration,
    pub(super) own: Duration,
    pub(super) longest: Duration,
    pub(super) flops: u64,
    /// Those of the spans, or of what is nested in them.
    pub(super) total_flops: Flops,
    pub(super) bytes: u64,
    /// What GPUs did for the spans themselves.
    pub(super) own_gpu: GpuMeasured,
    /// What GPUs did for the spans and those nested in them.
    pub(super) total_gpu: GpuMeasured,
}

/// What is added up of GPU work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GpuMeasured {
    pub(super) time: Duration,
    /// Bytes allocated, less those freed.
    pub(super) memory: i64,
    /// The most bytes in use after an allocation.
    pub(super) peak_memory: Option<u64>,
    pub(super) kernels: u64,
    pub(super) occupancy: MeanOccupancy,
}

/// The occupancy of kernels, a long one counting for more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeanOccupancy {
    /// Percent times seconds.
    weighted: f64,
    seconds: f64,
}

impl Measured {
    pub(super) fn of(span: Span<'_>, flops: &SpanFlops) -> Self {
        let op = span.fields().op();
        Self {
            calls: 1,
            total: span.duration(),
            own: span.self_time(),
            longest: span.duration(),
            flops: op.flops().unwrap_or(0),
            total_flops: flops.of_span(span.id()),
            bytes: op.bytes().unwrap_or(0),
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.own += other.own;
        self.longest = self.longest.max(other.longest);
        self.flops = self.flops.saturating_add(other.flops);
        self.total_flops.add(&other.total_flops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.own_gpu.add(&other.own_gpu);
        self.total_gpu.add(&other.total_gpu);
    }
}

impl GpuMeasured {
    pub(super) fn add(&mut self, other: &Self) {
        self.time += other.time;
        self.memory = self.memory.saturating_add(other.memory);
        self.peak_memory = self.peak_memory.max(other.peak_memory);
        self.kernels += other.kernels;
        self.occupancy.join(&other.occupancy);
    }

    pub(super) fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        self.time += work.duration();
        self.kernels += u64::from(work.kernel().is_some());
        self.occupancy.add(trace, work);
    }

    pub(super) fn add_allocation(&mut self, allocation: Allocation<'_>) {
        self.memory = self.memory.saturating_add(allocation.delta());
        if allocation.change() == MemoryChange::Allocate {
            self.peak_memory = self.peak_memory.max(Some(allocation.in_use()));
        }
    }
}

impl MeanOccupancy {
    /// Adds a piece of work, if it is a kernel whose occupancy is known.
    pub(super) fn add(&mut self, trace: &Trace, work: Work<'_>) {
        let device = trace.device(work.stream().device());
        let occupancy = device.zip(work.kernel()).and_then(|(device, kernel)| device.occupancy(kernel));
        if let Some(occupancy) = occupancy {
            let seconds = work.duration().as_secs_f64();
            self.weighted += occupancy.percent * seconds;
            self.seconds += seconds;
        }
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.weighted += other.weighted;
        self.seconds += other.seconds;
    }

    /// In percent, if any is known.
    pub(super) fn percent(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.weighted / self.seconds)
    }
}
