//! Where the time of steps went, by GPU and rank.

use crate::{
    analysis::{Analysis, StepBreakdown},
    trace::DeviceId,
};
use std::{collections::BTreeMap, time::Duration};

/// Where the time of typical steps went, for each GPU of each rank.
#[derive(Debug, Default)]
pub(super) struct Breakdowns {
    sums: BTreeMap<(u32, Option<DeviceId>), Sum>,
    /// The number of steps that are left out because they took very long.
    slow: u64,
}

/// The parts of the steps of one GPU, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) steps: u32,
    pub(super) duration: Duration,
    pub(super) parts: [Duration; Breakdowns::PARTS.len()],
}

impl Breakdowns {
    /// The names of the parts, in the order of [`StepBreakdown::parts`].
    pub(super) const PARTS: [&str; 8] = [
        "compute",
        "communication",
        "copies",
        "input, GPU idle",
        "synchronizing, GPU idle",
        "launching, GPU idle",
        "host, GPU idle",
        "outside of spans, GPU idle",
    ];
    /// The part of [`Self::PARTS`] in which a rank may wait for others.
    const COMMUNICATION: usize = 1;

    /// Adds the steps of a window that took no longer than `longest`.
    pub(super) fn add<'w, 'a>(&mut self, window: &'w Analysis<'a>, longest: Duration) -> Vec<&'w StepBreakdown<'a>> {
        let all = window.step_breakdown();
        let breakdowns: Vec<_> = all.iter().filter(|step| step.duration <= longest).collect();
        self.slow += (all.len() - breakdowns.len()) as u64;
        for step in &breakdowns {
            let sum = self.sums.entry((window.metadata().rank, step.device)).or_default();
            sum.steps = sum.steps.saturating_add(1);
            sum.duration = sum.duration.saturating_add(step.duration);
            for (part, (_, time)) in sum.parts.iter_mut().zip(step.parts()) {
                *part = part.saturating_add(time);
            }
        }
        breakdowns
    }

    /// Returns the number of steps that are left out because they took very long.
    pub(super) fn slow(&self) -> u64 {
        self.slow
    }

    /// Returns the sums of each rank and GPU.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, Option<DeviceId>, &Sum)> {
        self.sums.iter().map(|((rank, device), sum)| (*rank, *device, sum))
    }

    /// Returns the sum over all ranks and GPUs.
    pub(super) fn total(&self) -> Sum {
        let mut total = Sum::default();
        for sum in self.sums.values() {
            total.steps = total.steps.saturating_add(sum.steps);
            total.duration = total.duration.saturating_add(sum.duration);
            for (part, time) in total.parts.iter_mut().zip(sum.parts) {
                *part = part.saturating_add(time);
            }
        }
        total
    }

    /// Returns the names of the parts, which do not mention the GPU if there is none.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        let has_gpu = self.iter().any(|(_, device, _)| device.is_some());
        Self::PARTS.iter().map(move |part| if has_gpu { part } else { part.split(',').next().unwrap_or(part) })
    }
}

impl Sum {
    /// Returns the parts of a step on average.
    pub(super) fn means(&self) -> [Duration; Breakdowns::PARTS.len()] {
        self.parts.map(|part| part / self.steps.max(1))
    }

    /// Returns a step on average.
    pub(super) fn mean(&self) -> Duration {
        self.duration / self.steps.max(1)
    }

    /// Returns the time of a step, on average, without that in which it only communicates: ranks wait for the slowest
    /// one in their collectives, so that this is where they differ, although their steps take equally long.
    pub(super) fn own(&self) -> Duration {
        self.mean().saturating_sub(self.means()[Breakdowns::COMMUNICATION])
    }
}
