//! The usage of each GPU in each step of a trace, from its activity over time.

use super::{
    flops::{Flops, SpanFlops},
    gpu_usage::{GpuUsage, StepGpu},
    intervals::{Interval, Intervals},
    quantile::{at_rank, rank},
    sorted::SortedMap,
};
use crate::trace::{ApiCall, Detail, DeviceId, Step, StepId, Timestamp, Trace, TrackId, Work};
use std::time::Duration;

/// Returns the usage of each GPU in each whole step: see [`Analysis::gpu_steps`](super::Analysis::gpu_steps).
pub(super) fn gpu_steps(trace: &Trace, flops: &SpanFlops) -> Vec<StepGpu> {
    if trace.steps().iter().all(|step| step.cut().any()) {
        return Vec::new();
    }
    let devices = DeviceTimeline::of_devices(trace);
    let loading = loading(trace);
    let mut steps = Vec::new();
    for (index, step) in trace.steps().iter().enumerate().filter(|(_, step)| !step.cut().any()) {
        let id = StepId::new(index);
        // If several GPUs worked, it is not known which of them did which operations.
        let flops = (devices.len() == 1).then(|| flops.of_step(id));
        let loading = loading.get(&step.track_id());
        steps.extend(devices.iter().map(|device| device.step(id, step, loading, flops)));
    }
    steps
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

/// Returns when each thread was in a span of the input pipeline.
fn loading(trace: &Trace) -> SortedMap<TrackId, Intervals> {
    let mut intervals: SortedMap<TrackId, Vec<Interval>> = SortedMap::default();
    for span in trace.spans().filter(|span| span.input_stage().is_some()) {
        let interval = Interval { start: span.start(), end: span.end(), requested: None };
        intervals.or_default(span.track_id()).push(interval);
    }
    intervals.map_values(Intervals::new)
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

    /// Returns the usage in a step.
    ///
    /// `loading` has the times in which the thread of the step was in the input pipeline. `flops` are the operations of
    /// the step, if this GPU did all of them.
    fn step(&self, id: StepId, step: &Step, loading: Option<&Intervals>, flops: Option<Flops>) -> StepGpu {
        let (start, end) = (step.start(), step.end());
        let first = self.delays.partition_point(|(of, _)| *of < id);
        let past = self.delays.partition_point(|(of, _)| *of <= id);
        let delays = &self.delays[first..past];
        let mut usage = GpuUsage {
            duration: step.duration(),
            copying: self.copying.covered(start, end),
            copied: self.counts.copied_bytes[id.index()],
            kernels: self.counts.kernels[id.index()],
            launches: delays.len() as u64,
            delay: delays.iter().map(|(_, delay)| *delay).sum(),
            flops: flops.map(|flops| flops.count),
            ideal: flops.and_then(|flops| flops.ideal()),
            longest_delay: delays.last().map(|(_, delay)| *delay).unwrap_or_default(),
            ..GpuUsage::default()
        };
        for gap in self.busy.gaps(start, end) {
            usage.idle += gap.duration;
            usage.gaps += 1;
            usage.longest_gap = usage.longest_gap.max(gap.duration);
            if gap.waits_for_host {
                let end = gap.start + gap.duration;
                usage.waiting += gap.duration;
                usage.input += loading.map_or(Duration::ZERO, |loading| loading.covered(gap.start, end));
            }
        }
        usage.busy = usage.duration.saturating_sub(usage.idle);
        usage.judge();
        let count = delays.len();
        let median_delay = at_rank(count, rank(count, 0.5), |index| Some(delays.get(index)?.1));
        let peak_memory = self.peak_memory(start, end);
        StepGpu { step: step.number(), device: self.device, usage, median_delay, peak_memory }
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
        let requested = work.call().map(ApiCall::start);
        let interval = Interval { start: work.start(), end: work.end(), requested };
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
