//! The usage of each GPU in each step of a trace.

use super::{
    device_timeline::DeviceTimeline,
    intervals::{Interval, Intervals},
    span_flops::SpanFlops,
    step_gpu::StepGpu,
};
use crate::trace::{StepId, Trace, TrackId};
use std::collections::BTreeMap;

/// Returns the usage of each GPU in each whole step of a trace, in the order of the steps. GPUs that did nothing in the
/// window are left out.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for step in kernspan::analysis::gpu_steps(trace) {
///     println!("step {} on GPU {}: busy {:.0} %", step.step, step.device, step.usage.busy_percent());
/// }
/// # }
/// ```
#[must_use]
pub fn gpu_steps(trace: &Trace) -> Vec<StepGpu> {
    gpu_steps_with_reasons(trace, &SpanFlops::of(trace)).into_iter().map(|(step, _)| step).collect()
}

/// Returns the same as [`gpu_steps`], each with the reason why the MFU of the step is not known.
///
/// There is no reason if the MFU is known, or if the step has no floating-point operations.
pub(crate) fn gpu_steps_with_reasons<'a>(trace: &Trace, flops: &'a SpanFlops) -> Vec<(StepGpu, Option<&'a str>)> {
    if trace.steps().iter().all(|step| step.cut().any()) {
        return Vec::new();
    }
    let devices = DeviceTimeline::of_devices(trace);
    let loading = loading(trace);
    let mut steps = Vec::new();
    for (index, step) in trace.steps().iter().enumerate().filter(|(_, step)| !step.cut().any()) {
        let id = StepId::new(index);
        // If several GPUs worked, it is not known which of them did which operations.
        let of_step = (devices.len() == 1).then(|| flops.of_step(id));
        let reason = match of_step {
            Some(of_step) if of_step.ideal().is_none() => flops.why_peak_unknown(),
            None if flops.of_step(id).count > 0 => Some("several GPUs worked"),
            _ => None,
        };
        let loading = loading.get(&step.track_id());
        steps.extend(devices.iter().map(|device| (device.step(id, step, loading, of_step), reason)));
    }
    steps
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
