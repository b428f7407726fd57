//! The time of each step, by what the GPU did, and what the host did while the GPU was idle.

use super::{
    sorted::SortedSet,
    step_parts::StepParts,
    step_sweep::{HostPart, StepSums, StepSweep},
    step_time::StepInterval,
};
use crate::trace::{DeviceId, ThreadId, Trace};
use std::{cmp::Reverse, time::Duration};

/// Where the time of a step went on one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepBreakdown<'a> {
    /// The number of the step in the run, counted from 0.
    pub step: u64,
    /// The GPU; `None` if no GPU did anything in the window.
    pub device: Option<DeviceId>,
    /// The time of the step: see [`StepInterval`]. The parts add up to it.
    pub duration: Duration,
    /// The duration of the step on the host.
    pub on_host: Duration,
    /// The part of [`on_host`](Self::on_host) in which the GPU did not wait for the host: it is hidden behind the GPU's
    /// work of this step or, if the host runs ahead, of others.
    pub hidden: Duration,
    /// The parts.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub parts: StepParts,
    /// [`StepParts::host`] by the name of the innermost span, longest first. If the step's thread waited for another
    /// one that was in a span, it is the span of the other one.
    pub host_by_span: Vec<(&'a str, Duration)>,
}

impl<'a> StepBreakdown<'a> {
    fn new(step: &StepInterval, device: Option<DeviceId>, sums: StepSums<'a>) -> Self {
        let [compute, exposed_communication, exposed_copies] = sums.gpu;
        let of = |part: HostPart| sums.host[part as usize];
        let mut host_by_span: Vec<_> = sums.by_span.into_iter().collect();
        host_by_span.sort_by_key(|&(name, time)| (Reverse(time), name));
        let parts = StepParts {
            compute,
            exposed_communication,
            exposed_copies,
            between_kernels: sums.queued,
            input: of(HostPart::Input),
            synchronizing: of(HostPart::Synchronizing),
            launching: of(HostPart::Launching),
            host: host_by_span.iter().map(|&(_, time)| time).sum(),
            other: sums.other,
        };
        let hidden = step.host.saturating_sub(parts.waiting());
        Self { step: step.step, device, duration: step.time(), on_host: step.host, hidden, parts, host_by_span }
    }
}

/// Returns where the time of each whole step went: see [`Analysis::step_breakdown`](super::Analysis::step_breakdown).
pub(super) fn step_breakdown<'a>(trace: &'a Trace, intervals: &[StepInterval]) -> Vec<StepBreakdown<'a>> {
    let devices: SortedSet<_> = trace.work().map(|work| work.stream().device()).collect();
    let thread = |step: &StepInterval| trace.track(trace.steps()[step.id.index()].track_id()).thread();
    let threads: SortedSet<ThreadId> = intervals.iter().map(thread).collect();
    let mut rows = Vec::with_capacity(intervals.len());
    for of in threads {
        let steps: Vec<_> = intervals.iter().copied().filter(|step| thread(step) == of).collect();
        let sums = StepSweep::new(trace, of, &devices, &steps).run();
        rows.extend(steps.into_iter().zip(sums));
    }
    rows.sort_by_key(|(step, _)| step.id);
    let of_gpus = |(step, sums): (StepInterval, Vec<StepSums<'a>>)| {
        let devices = &devices;
        let row = move |(gpu, sums)| StepBreakdown::new(&step, devices.get(gpu).copied(), sums);
        sums.into_iter().enumerate().map(row)
    };
    rows.into_iter().flat_map(of_gpus).collect()
}

#[cfg(test)]
mod tests;
