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
    let mut steps = Vec::new();
    each_step(trace, &SpanFlops::of(trace), |step, _| steps.push(step));
    steps
}

/// Calls `found` for each whole step of a trace and each GPU that did anything in the window.
///
/// The second argument is the reason why the step's MFU is not known, if it has floating-point operations.
pub(crate) fn each_step(trace: &Trace, flops: &SpanFlops, mut found: impl FnMut(StepGpu, Option<&str>)) {
    if trace.steps().iter().all(|step| step.cut().any()) {
        return;
    }
    let devices = DeviceTimeline::of_devices(trace);
    let loading = loading(trace);
    for (index, step) in trace.steps().iter().enumerate().filter(|(_, step)| !step.cut().any()) {
        let id = StepId::new(index);
        // If several GPUs worked, nothing says which of them did which operations.
        let of_step = (devices.len() == 1).then(|| flops.of_step(id));
        let no_mfu = match of_step {
            Some(of_step) if of_step.ideal().is_none() => flops.why_peak_unknown(),
            None if flops.of_step(id).count > 0 => Some("several GPUs worked"),
            _ => None,
        };
        for device in &devices {
            found(device.step(id, step, loading.get(&step.track_id()), of_step), no_mfu);
        }
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
