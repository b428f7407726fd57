use super::{
    busy::{Busy, Stretch},
    flops::{Flops, SpanFlops},
    usage::GpuUsage,
};
use crate::trace::{ApiCall, Detail, DeviceId, Step, StepId, Timestamp, Trace, TrackId, Work};
use std::{collections::BTreeMap, time::Duration};

/// How a GPU spent a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepGpu {
    /// The step's number in the run, counted from 0.
    pub step: u64,
    /// The GPU.
    pub device: DeviceId,
    /// How the GPU spent it.
    pub usage: GpuUsage,
    /// The median of the time from a call of the API to the beginning of its work, by the nearest rank.
    pub median_delay: Option<Duration>,
    /// The most bytes of the GPU's memory that were in use in the step, if allocations were recorded, and there was one in the step or before it in the
    /// window: see [`Allocation::in_use`](crate::trace::Allocation::in_use).
    pub peak_memory: Option<u64>,
}

/// How each GPU spent each whole step of a trace, step by step. GPUs that did nothing in the window are left out.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for step in kernspan::analysis::gpu_steps(trace) {
///     println!("step {} on GPU {}: busy {:.0} %", step.step, step.device, step.usage.busy_percent());
/// }
/// # }
/// ```
pub fn gpu_steps(trace: &Trace) -> Vec<StepGpu> {
    let mut steps = Vec::new();
    each_step(trace, &SpanFlops::of(trace), |step, _| steps.push(step));
    steps
}

/// Each whole step of a trace, on each GPU that did anything in it, and why its MFU is not known though there are floating-point operations.
pub(crate) fn each_step(trace: &Trace, flops: &SpanFlops, mut found: impl FnMut(StepGpu, Option<&str>)) {
    if trace.steps().iter().all(|step| step.cut().any()) {
        return;
    }
    let mut devices: BTreeMap<DeviceId, DeviceWork> = BTreeMap::new();
    for work in trace.work() {
        let device = devices.entry(work.stream().device());
        device.or_insert_with(|| DeviceWork::new(trace.steps().len())).add(work);
    }
    for allocation in trace.allocations() {
        if let Some(device) = devices.get_mut(&allocation.device()) {
            device.in_use.push((allocation.at(), allocation.in_use()));
        }
    }
    let devices: Vec<_> = devices.into_iter().map(|(id, work)| (id, work.put_together())).collect();
    let loading = loading(trace);
    for (place, step) in trace.steps().iter().enumerate().filter(|(_, step)| !step.cut().any()) {
        let place = StepId::new(place);
        // Where several worked, nothing says which of them did what.
        let of_step = (devices.len() == 1).then(|| flops.of_step(place));
        for (id, device) in &devices {
            let no_mfu = match of_step {
                Some(of_step) if of_step.ideal().is_none() => flops.unknown(),
                None if flops.of_step(place).count > 0 => Some("several GPUs worked"),
                _ => None,
            };
            found(device.step(*id, place, step, loading.get(&step.track_id()), of_step), no_mfu);
        }
    }
}

/// When each thread was in a span of the input pipeline.
fn loading(trace: &Trace) -> BTreeMap<TrackId, Busy> {
    let mut stretches: BTreeMap<TrackId, Vec<Stretch>> = BTreeMap::new();
    for span in trace.spans().filter(|span| span.input_stage().is_some()) {
        let stretch = Stretch { start: span.start(), end: span.end(), asked: None };
        stretches.entry(span.track_id()).or_default().push(stretch);
    }
    stretches.into_iter().map(|(track, stretches)| (track, Busy::new(stretches))).collect()
}

/// What one device did in a window, as far as steps need it.
#[derive(Default)]
struct DeviceWork {
    pieces: Vec<Stretch>,
    copies: Vec<Stretch>,
    delays: Vec<(StepId, Duration)>,
    /// By step.
    kernels: Vec<u64>,
    /// Bytes, by step.
    copied: Vec<u64>,
    /// Bytes in use after each allocation and free, in order of time.
    in_use: Vec<(Timestamp, u64)>,
}

impl DeviceWork {
    fn new(steps: usize) -> Self {
        Self { kernels: vec![0; steps], copied: vec![0; steps], ..Self::default() }
    }

    fn add(&mut self, work: Work<'_>) {
        let asked = work.call().map(ApiCall::start);
        let piece = Stretch { start: work.start(), end: work.end(), asked };
        self.pieces.push(piece);
        if let Detail::Copy(_) = work.detail() {
            self.copies.push(piece);
        }
        if let Some(step) = work.step_id() {
            self.delays.extend(work.delay().map(|delay| (step, delay)));
            self.kernels[step.index()] += u64::from(work.kernel().is_some());
            if let Detail::Copy(_) = work.detail() {
                let copied = &mut self.copied[step.index()];
                *copied = copied.saturating_add(work.bytes());
            }
        }
    }

    fn put_together(mut self) -> DeviceTimes {
        self.delays.sort_unstable();
        let (busy, copies) = (Busy::new(self.pieces), Busy::new(self.copies));
        let Self { delays, kernels, copied, in_use, .. } = self;
        DeviceTimes { busy, copies, delays, kernels, copied, in_use }
    }
}

/// The same, in order.
struct DeviceTimes {
    busy: Busy,
    copies: Busy,
    delays: Vec<(StepId, Duration)>,
    kernels: Vec<u64>,
    copied: Vec<u64>,
    in_use: Vec<(Timestamp, u64)>,
}

impl DeviceTimes {
    /// The most bytes in use between two moments, what was in use at the first of them included.
    fn peak_memory(&self, start: Timestamp, end: Timestamp) -> Option<u64> {
        let first = self.in_use.partition_point(|&(at, _)| at < start).saturating_sub(1);
        let past = self.in_use.partition_point(|&(at, _)| at < end);
        self.in_use.get(first..past)?.iter().map(|&(_, bytes)| bytes).max()
    }

    fn step(&self, device: DeviceId, id: StepId, step: &Step, loading: Option<&Busy>, flops: Option<Flops>) -> StepGpu {
        let (start, end) = (step.start(), step.end());
        let first = self.delays.partition_point(|(of, _)| *of < id);
        let past = self.delays.partition_point(|(of, _)| *of <= id);
        let delays = &self.delays[first..past];
        let mut usage = GpuUsage {
            duration: step.duration(),
            copying: self.copies.time(start, end),
            copied: self.copied[id.index()],
            kernels: self.kernels[id.index()],
            launches: delays.len() as u64,
            delay: delays.iter().map(|(_, delay)| *delay).sum(),
            flops: flops.map(|flops| flops.count),
            ideal: flops.and_then(|flops| flops.ideal()),
            longest_delay: delays.last().map(|(_, delay)| *delay).unwrap_or_default(),
            ..GpuUsage::default()
        };
        for gap in self.busy.gaps(start, end) {
            usage.idle += gap.time;
            usage.gaps += 1;
            usage.longest_gap = usage.longest_gap.max(gap.time);
            if gap.waiting {
                usage.waiting += gap.time;
                usage.input += loading.map_or(Duration::ZERO, |loading| loading.time(gap.start, gap.start + gap.time));
            }
        }
        usage.busy = usage.duration.saturating_sub(usage.idle);
        usage.judge();
        let median_delay = delays.get(delays.len().div_ceil(2).saturating_sub(1)).map(|(_, delay)| *delay);
        let peak_memory = self.peak_memory(start, end);
        StepGpu { step: step.number(), device, usage, median_delay, peak_memory }
    }
}
