//! The usage of each GPU in each step of a trace.

use super::{
    device_timeline::DeviceTimeline,
    gpu_usage::StepGpu,
    intervals::{Interval, Intervals},
    span_flops::SpanFlops,
};
use crate::trace::{StepId, Trace, TrackId};
use std::collections::BTreeMap;

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
fn loading(trace: &Trace) -> BTreeMap<TrackId, Intervals> {
    let mut intervals: BTreeMap<TrackId, Vec<Interval>> = BTreeMap::new();
    for span in trace.spans().filter(|span| span.input_stage().is_some()) {
        let interval = Interval { start: span.start(), end: span.end(), requested: None };
        intervals.entry(span.track_id()).or_default().push(interval);
    }
    intervals.into_iter().map(|(track, intervals)| (track, Intervals::new(intervals))).collect()
}
