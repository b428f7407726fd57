//! Times and counts, added up over spans and over GPU work.

use crate::{
    analysis::{Flops, SpanFlops},
    trace::{Allocation, HeapUse, MemoryChange, Span, Trace, Work},
};
use std::time::Duration;

/// Times and counts, added up over spans.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpanTotals {
    /// The number of whole calls.
    pub(super) calls: u64,
    /// The number of calls that are cut by the edge of a window, whose times are not known.
    pub(super) cut_calls: u64,
    /// The number of enters, of which a call may have several.
    pub(super) enters: u64,
    /// Time with nested spans.
    pub(super) total_time: Duration,
    /// Time of whole calls, with nested spans.
    pub(super) whole_time: Duration,
    /// GPU time of whole calls, with nested spans.
    pub(super) whole_gpu: Duration,
    /// Time without nested spans.
    pub(super) self_time: Duration,
    pub(super) longest: Duration,
    /// Time from the first enter of each call to its last exit.
    pub(super) latency: Duration,
    pub(super) longest_latency: Duration,
    /// Floating-point operations that the spans state themselves.
    pub(super) flops: u64,
    /// Floating-point operations of the spans, or of everything nested in them: see [`SpanFlops`].
    pub(super) total_flops: Flops,
    pub(super) bytes: u64,
    /// The most parameters that a span states, and their bytes.
    pub(super) parameters: Option<u64>,
    pub(super) parameter_bytes: Option<u64>,
    /// GPU work that the spans caused themselves.
    pub(super) self_gpu: GpuTotals,
    /// GPU work that the spans and those nested in them caused.
    pub(super) total_gpu: GpuTotals,
    /// The heap that the spans used themselves.
    pub(super) self_heap: HeapUse,
    /// The heap that the spans and those nested in them used.
    pub(super) total_heap: HeapUse,
    /// The CPU time of the spans.
    pub(super) on_cpu: CpuTotals,
}

/// CPU time, added up over the spans that have it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuTotals {
    /// The number of spans that have it.
    pub(super) spans: u64,
    /// With nested spans.
    pub(super) total: Duration,
    /// Without nested spans.
    pub(super) own: Duration,
    /// How long these spans took.
    pub(super) elapsed: Duration,
}

/// Times and counts, added up over GPU work and allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GpuTotals {
    pub(super) time: Duration,
    /// Bytes allocated, less bytes freed.
    pub(super) memory: i64,
    /// The most bytes in use after an allocation.
    pub(super) peak_memory: Option<u64>,
    pub(super) kernels: u64,
    pub(super) occupancy: MeanOccupancy,
}

/// The mean occupancy of kernels, weighted by their duration.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MeanOccupancy {
    percent_seconds: f64,
    seconds: f64,
}

impl SpanTotals {
    /// Adds one enter of a span, without its call and its GPU work. `is_cut` says that its call is not whole.
    pub(super) fn add_enter(&mut self, span: Span<'_>, flops: &SpanFlops, is_cut: bool) {
        self.enters += 1;
        self.total_time += span.duration();
        self.whole_time += if is_cut { Duration::ZERO } else { span.duration() };
        self.self_time += span.self_time();
        self.on_cpu.add_span(span);
        self.total_flops.add(&flops.of_span(span.id()));
        if !span.fields().is_empty() {
            let op = span.fields().op();
            self.flops = self.flops.saturating_add(op.flops().unwrap_or(0));
            self.bytes = self.bytes.saturating_add(op.bytes().unwrap_or(0));
            self.parameters = self.parameters.max(op.parameters());
            self.parameter_bytes = self.parameter_bytes.max(op.parameter_bytes());
        }
    }

    /// Adds a whole call in which a span was entered for `busy`, and `latency` after whose first enter it was exited
    /// last.
    pub(super) fn add_call(&mut self, busy: Duration, latency: Duration) {
        self.calls += 1;
        self.longest = self.longest.max(busy);
        self.latency += latency;
        self.longest_latency = self.longest_latency.max(latency);
    }

    /// Adds the totals of other spans.
    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.cut_calls += other.cut_calls;
        self.whole_time += other.whole_time;
        self.whole_gpu += other.whole_gpu;
        self.enters += other.enters;
        self.total_time += other.total_time;
        self.self_time += other.self_time;
        self.longest = self.longest.max(other.longest);
        self.latency += other.latency;
        self.longest_latency = self.longest_latency.max(other.longest_latency);
        self.flops = self.flops.saturating_add(other.flops);
        self.total_flops.add(&other.total_flops);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.parameters = self.parameters.max(other.parameters);
        self.parameter_bytes = self.parameter_bytes.max(other.parameter_bytes);
        self.self_gpu.add(&other.self_gpu);
        self.total_gpu.add(&other.total_gpu);
        self.self_heap += other.self_heap;
        self.total_heap += other.total_heap;
        self.on_cpu.add(&other.on_cpu);
    }
}

impl CpuTotals {
    /// Adds a span, if it has CPU time.
    fn add_span(&mut self, span: Span<'_>) {
        if let Some((total, own)) = span.cpu_time().zip(span.self_cpu_time()) {
            self.add(&Self { spans: 1, total, own, elapsed: span.duration() });
        }
    }

    /// Adds other totals.
    pub(super) fn add(&mut self, other: &Self) {
        self.spans += other.spans;
        self.total += other.total;
        self.own += other.own;
        self.elapsed += other.elapsed;
    }

    /// Returns a time, if a span has any.
    pub(super) fn known<T>(&self, time: T) -> Option<T> {
        (self.spans > 0).then_some(time)
    }
}

impl GpuTotals {
    /// Adds other totals.
    pub(super) fn add(&mut self, other: &Self) {
        self.time += other.time;
        self.memory = self.memory.saturating_add(other.memory);
        self.peak_memory = self.peak_memory.max(other.peak_memory);
        self.kernels += other.kernels;
        self.occupancy.add(&other.occupancy);
    }

    /// Adds a kernel, copy or fill.
    pub(super) fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        self.time += work.duration();
        self.kernels += u64::from(work.kernel().is_some());
        self.occupancy.add_work(trace, work);
    }

    /// Adds an allocation or a free.
    pub(super) fn add_allocation(&mut self, allocation: Allocation<'_>) {
        self.memory = self.memory.saturating_add(allocation.delta());
        if allocation.change() == MemoryChange::Allocate {
            self.peak_memory = self.peak_memory.max(Some(allocation.in_use()));
        }
    }
}

impl MeanOccupancy {
    /// Adds a piece of work, if it is a kernel whose occupancy is known.
    pub(super) fn add_work(&mut self, trace: &Trace, work: Work<'_>) {
        let device = trace.device(work.stream().device());
        let occupancy = device.zip(work.kernel()).and_then(|(device, kernel)| device.occupancy(kernel));
        if let Some(occupancy) = occupancy {
            let seconds = work.duration().as_secs_f64();
            self.percent_seconds += occupancy.percent * seconds;
            self.seconds += seconds;
        }
    }

    /// Adds the kernels of another mean.
    pub(super) fn add(&mut self, other: &Self) {
        self.percent_seconds += other.percent_seconds;
        self.seconds += other.seconds;
    }

    /// Returns the mean in percent, or `None` if no kernel's occupancy is known.
    pub(super) fn percent(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.percent_seconds / self.seconds)
    }
}
