//! Where the time of steps went, by GPU and rank.

use crate::{
    analysis::step_breakdown,
    export::json::{Array, Object},
    trace::{DeviceId, Trace},
};
use std::{collections::BTreeMap, time::Duration};

/// Where the time of the recorded steps went, for each GPU of each rank.
#[derive(Debug, Default)]
pub(super) struct Breakdowns {
    sums: BTreeMap<(u32, Option<DeviceId>), Sum>,
}

/// The parts of the steps of one GPU, added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    pub(super) steps: u32,
    pub(super) duration: Duration,
    pub(super) parts: [Duration; Breakdowns::PARTS.len()],
}

impl Breakdowns {
    /// The names of the parts, in the order of [`Sum::parts`].
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

    /// Adds a window.
    pub(super) fn add(&mut self, trace: &Trace) {
        for step in step_breakdown(trace) {
            let sum = self.sums.entry((trace.metadata().rank, step.device)).or_default();
            sum.steps = sum.steps.saturating_add(1);
            sum.duration = sum.duration.saturating_add(step.duration);
            for (part, (_, time)) in sum.parts.iter_mut().zip(step.parts()) {
                *part = part.saturating_add(time);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the sums of each rank and GPU.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Option<DeviceId>, &Sum)> {
        self.sums.iter().map(|((rank, device), sum)| (*rank, *device, sum))
    }

    /// Writes a bar for each GPU: the parts of a step on average.
    pub(super) fn write(&self, section: &mut Object<'_>, with_ranks: bool) {
        // Without a GPU, nothing is said of one.
        let has_gpu = self.iter().any(|(_, device, _)| device.is_some());
        let name = |part: &&'static str| if has_gpu { *part } else { part.split(',').next().unwrap_or(part) };
        section.array("parts", |array| Self::PARTS.iter().map(name).for_each(|part| array.string(part)));
        section.array("rows", |rows| {
            for (rank, device, sum) in self.iter() {
                rows.object(|row| {
                    let of_rank = if with_ranks { format!("rank {rank}, ") } else { String::new() };
                    let gpu = device.map_or_else(|| "no GPU".to_owned(), |device| format!("GPU {device}"));
                    let steps = sum.steps;
                    row.string("label", &format!("{of_rank}{gpu}: a step on average, of {steps} recorded"));
                    row.array("values", |array| sum.write_parts(array));
                });
            }
        });
    }
}

impl Sum {
    /// Returns the parts of a step on average.
    pub(super) fn means(&self) -> [Duration; Breakdowns::PARTS.len()] {
        self.parts.map(|part| part / self.steps.max(1))
    }

    fn write_parts(&self, array: &mut Array<'_>) {
        self.means().iter().for_each(|part| array.number(part.as_nanos()));
    }
}
