//! The usage of each GPU in each step of a trace, from its activity over time.

use super::{
    flops::{Flops, SpanFlops},
    gpu_usage::{GpuUsage, StepGpu},
    intervals::{Interval, Intervals},
    quantile::{at_rank, rank},
    sorted::SortedMap,
    step_breakdown::StepBreakdown,
    step_time::StepInterval,
};
use crate::trace::{Detail, DeviceId, StepId, Timestamp, Trace, Work};
use std::time::Duration;

/// Returns the usage of each GPU in each whole step, whose breakdown this is: see
/// [`Analysis::gpu_steps`](super::Analysis::gpu_steps).
pub(super) fn gpu_steps(
    trace: &Trace,
    intervals: &[StepInterval],
    breakdown: &[StepBreakdown<'_>],
    flops: &SpanFlops,
) -> Vec<StepGpu> {
    let devices = if intervals.is_empty() { Vec::new() } else { DeviceTimeline::of_devices(trace) };
    let of_gpus = intervals.iter().flat_map(|step| devices.iter().map(move |device| (step, device)));
    let step = |((step, device), parts): ((&StepInterval, &DeviceTimeline), &StepBreakdown<'_>)| {
        // If several GPUs worked, it is not known which of them did which operations.
        let flops = (devices.len() == 1).then(|| flops.of_step(step.id));
        device.step(trace, step, parts, flops)
    };
    of_gpus.zip(breakdown).map(step).collect()
}

/// Returns why the MFU of steps is not known, in which `gpus` worked; `None` if it is, or if no floating-point
/// operations are known.
pub(super) fn no_mfu<'a>(trace: &Trace, flops: &'a SpanFlops, gpus: usize) -> Option<&'a str> {
    let whole = trace.steps().iter().enumerate().filter(|(_, step)| !step.cut().any());
    let mut whole = whole.map(|(index, _)| flops.of_step(StepId::new(index)));
    match gpus {
        0 => None,
        1 => whole.any(|step| step.ideal().is_none()).then(|| flops.why_peak_unknown()).flatten(),
        _ => whole.any(|step| step.count > 0).then_some("several GPUs worked"),
    }
}

/// The activity of one GPU of a trace over time, and the counts of each step.
struct DeviceTimeline {
    device: DeviceId,
    busy: Intervals,
    copying: Intervals,
    /// The time from the API call to the start of its work, with the step of the call; sorted by both.
    delays: Vec<(StepId, Duration)>,
    counts: StepCounts,
    /// Bytes in use after each allocation and free, in order of time.
    in_use: Vec<(Timestamp, u64)>,
}

/// Counts of the work that each step has caused, by the index of the step.
struct StepCounts {
    kernels: Vec<u64>,
    copied_bytes: Vec<u64>,
}

/// A builder of a [`DeviceTimeline`]. It takes the work of one GPU in the order of the trace.
struct TimelineBuilder {
    busy: Vec<Interval>,
    copying: Vec<Interval>,
    delays: Vec<(StepId, Duration)>,
    counts: StepCounts,
    in_use: Vec<(Timestamp, u64)>,
}

impl DeviceTimeline {
    /// Returns the timeline of each GPU that did anything, in the order of their numbers.
    fn of_devices(trace: &Trace) -> Vec<Self> {
        let mut devices: SortedMap<DeviceId, TimelineBuilder> = SortedMap::default();
        for work in trace.work() {
            let new = || TimelineBuilder::new(trace.steps().len());
            devices.or_insert_with(work.stream().device(), new).add(work);
        }
        for allocation in trace.allocations() {
            if let Some(device) = devices.get_mut(&allocation.device()) {
                device.in_use.push((allocation.at(), allocation.in_use()));
            }
        }
        devices.into_iter().map(|(device, builder)| builder.build(device)).collect()
    }

    /// Returns the usage in a step, of which these are the parts on this GPU. `flops` are the operations of the step,
    /// if this GPU did all of them.
    fn step(
        &self,
        trace: &Trace,
        interval: &StepInterval,
        breakdown: &StepBreakdown<'_>,
        flops: Option<Flops>,
    ) -> StepGpu {
        let (id, parts) = (interval.id, breakdown.parts);
        let first = self.delays.partition_point(|(of, _)| *of < id);
        let past = self.delays.partition_point(|(of, _)| *of <= id);
        let delays = &self.delays[first..past];
        let gaps = || self.busy.gaps(interval.start, interval.end).map(|gap| gap.duration);
        let mut usage = GpuUsage {
            duration: breakdown.duration,
            busy: parts.busy(),
            idle: parts.idle(),
            waiting: parts.waiting(),
            parts,
            gaps: gaps().count() as u64,
            longest_gap: gaps().max().unwrap_or_default(),
            copying: self.copying.covered(interval.start, interval.end),
            copied: self.counts.copied_bytes[id.index()],
            kernels: self.counts.kernels[id.index()],
            launches: delays.len() as u64,
            delay: delays.iter().map(|(_, delay)| *delay).sum(),
            flops: flops.map(|flops| flops.count),
            ideal: flops.and_then(|flops| flops.ideal()),
            longest_delay: delays.last().map(|(_, delay)| *delay).unwrap_or_default(),
            ..GpuUsage::default()
        };
        usage.judge();
        let count = delays.len();
        let median_delay = at_rank(count, rank(count, 0.5), |index| Some(delays.get(index)?.1));
        // Memory is allocated and freed by the host.
        let step = &trace.steps()[id.index()];
        let peak_memory = self.peak_memory(step.start(), step.end());
        StepGpu { step: interval.step, device: self.device, usage, median_delay, peak_memory }
    }

    /// Returns the most bytes in use between two moments, including those in use at the first moment.
    fn peak_memory(&self, start: Timestamp, end: Timestamp) -> Option<u64> {
        let first = self.in_use.partition_point(|&(at, _)| at < start).saturating_sub(1);
        let past = self.in_use.partition_point(|&(at, _)| at < end);
        self.in_use.get(first..past)?.iter().map(|&(_, bytes)| bytes).max()
    }
}

impl TimelineBuilder {
    fn new(steps: usize) -> Self {
        let counts = StepCounts { kernels: vec![0; steps], copied_bytes: vec![0; steps] };
        Self { busy: Vec::new(), copying: Vec::new(), delays: Vec::new(), counts, in_use: Vec::new() }
    }

    fn add(&mut self, work: Work<'_>) {
        let interval = Interval::of(work);
        let is_copy = matches!(work.detail(), Detail::Copy(_));
        self.busy.push(interval);
        if is_copy {
            self.copying.push(interval);
        }
        if let Some(step) = work.step_id() {
            self.delays.extend(work.delay().map(|delay| (step, delay)));
            self.counts.kernels[step.index()] += u64::from(work.kernel().is_some());
            if is_copy {
                let copied = &mut self.counts.copied_bytes[step.index()];
                *copied = copied.saturating_add(work.bytes());
            }
        }
    }

    fn build(mut self, device: DeviceId) -> DeviceTimeline {
        self.delays.sort_unstable();
        let (busy, copying) = (Intervals::new(self.busy), Intervals::new(self.copying));
        DeviceTimeline { device, busy, copying, delays: self.delays, counts: self.counts, in_use: self.in_use }
    }
}
