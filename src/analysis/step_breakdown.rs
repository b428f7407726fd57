//! The time of each step, by what the GPU did, and what the host did while the GPU was idle.

use super::{
    sorted::SortedSet,
    step_sweep::{HostPart, StepSums, StepSweep},
};
use crate::trace::{DeviceId, ThreadId, Trace};
use std::{cmp::Reverse, time::Duration};

/// The time of a step, each moment counted once.
///
/// While the GPU is busy, a moment is [`compute`](Self::compute) if a kernel runs that is no communication; else
/// [`exposed_communication`](Self::exposed_communication) if one of NCCL's kernels runs; else
/// [`exposed_copies`](Self::exposed_copies).
///
/// While the GPU is idle, it is what the host does then: [`input`](Self::input), else
/// [`synchronizing`](Self::synchronizing), else [`launching`](Self::launching), else [`host`](Self::host), else
/// [`other`](Self::other). Two kinds of threads count: the thread of the step, and those that launch kernels for it,
/// such as PyTorch's autograd thread or Burn's device thread. The thread of the step waits for one of these if it
/// neither enters nor leaves a span or a call while the other launches work, as in `loss.backward()`. Functions that
/// were not recorded are not seen.
///
/// The parts add up to the duration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StepBreakdown<'a> {
    /// The number of the step in the run, counted from 0.
    pub step: u64,
    /// The GPU; `None` if no GPU did anything in the window.
    pub device: Option<DeviceId>,
    /// The duration of the step.
    pub duration: Duration,
    /// The time in which kernels computed.
    pub compute: Duration,
    /// The time in which kernels communicated with other GPUs, and none computed.
    pub exposed_communication: Duration,
    /// The time in which memory was copied or set, and no kernel ran.
    pub exposed_copies: Duration,
    /// The idle time in which the step's thread was in a span of the input pipeline:
    /// [`Span::input_stage`](crate::trace::Span::input_stage). Load data in advance, or with more threads.
    pub input: Duration,
    /// The idle time in which the step's thread, or one that it waited for, was in a call that waits for the GPU: one
    /// that synchronizes with a stream, an event or a context, or copies from the GPU, unless that is asynchronous and
    /// into pinned memory. Wait less often.
    pub synchronizing: Duration,
    /// The idle time in which the step's thread, or one that works for it, was in a call that launches kernels or
    /// graphs, or copies or sets memory. Launch less often: larger batches, fused kernels, CUDA graphs.
    pub launching: Duration,
    /// The idle time in which the step's thread, or one that it waited for, was in any other span.
    pub host: Duration,
    /// The idle time in which no span was open on these threads.
    pub other: Duration,
    /// `host` by the name of the innermost span, longest first. If the step's thread waited for another one that was in
    /// a span, it is the span of the other one.
    pub host_by_span: Vec<(&'a str, Duration)>,
}

impl<'a> StepBreakdown<'a> {
    fn new(step: u64, device: Option<DeviceId>, duration: Duration, sums: StepSums<'a>) -> Self {
        let [compute, exposed_communication, exposed_copies] = sums.gpu;
        let of = |part: HostPart| sums.host[part as usize];
        let mut host_by_span: Vec<_> = sums.by_span.into_iter().collect();
        host_by_span.sort_by_key(|&(name, time)| (Reverse(time), name));
        Self {
            step,
            device,
            duration,
            compute,
            exposed_communication,
            exposed_copies,
            input: of(HostPart::Input),
            synchronizing: of(HostPart::Synchronizing),
            launching: of(HostPart::Launching),
            host: host_by_span.iter().map(|&(_, time)| time).sum(),
            other: sums.other,
            host_by_span,
        }
    }

    /// The parts, each with its name.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Duration); 8] {
        [
            ("compute", self.compute),
            ("communication", self.exposed_communication),
            ("copies", self.exposed_copies),
            ("input", self.input),
            ("synchronizing", self.synchronizing),
            ("launching", self.launching),
            ("host", self.host),
            ("other", self.other),
        ]
    }

    /// The time in which the GPU did anything.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.compute + self.exposed_communication + self.exposed_copies
    }
}

/// Returns where the time of each whole step went: see [`Analysis::step_breakdown`](super::Analysis::step_breakdown).
pub(super) fn step_breakdown(trace: &Trace) -> Vec<StepBreakdown<'_>> {
    let devices: SortedSet<_> = trace.work().map(|work| work.stream().device()).collect();
    let thread = |step: usize| trace.track(trace.steps()[step].track_id()).thread();
    let whole: Vec<_> = (0..trace.steps().len()).filter(|&step| !trace.steps()[step].cut().any()).collect();
    let threads: SortedSet<ThreadId> = whole.iter().map(|&step| thread(step)).collect();
    let mut rows = Vec::new();
    for of in threads {
        let steps: Vec<_> = whole.iter().copied().filter(|&step| thread(step) == of).collect();
        let sums = StepSweep::new(trace, of, &devices, &steps).run();
        rows.extend(steps.into_iter().zip(sums));
    }
    rows.sort_by_key(|(step, _)| *step);
    let mut breakdowns = Vec::new();
    for (index, sums) in rows {
        let step = &trace.steps()[index];
        for (gpu, sums) in sums.into_iter().enumerate() {
            let device = devices.get(gpu).copied();
            breakdowns.push(StepBreakdown::new(step.number(), device, step.duration(), sums));
        }
    }
    breakdowns
}

#[cfg(test)]
mod tests;
