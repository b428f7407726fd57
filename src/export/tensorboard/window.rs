//! What a recorded window knows of its steps, as scalars: the report's own numbers.

use super::{summary::Summary, tag};
use crate::{
    report::StepGpu,
    trace::{Timestamp, Trace},
};
use std::collections::BTreeMap;

/// The scalars of each step, by its number in the trace, with the moment that they are of.
pub(super) fn scalars(trace: &Trace) -> Vec<(Timestamp, u64, Summary)> {
    let ends: BTreeMap<u64, Timestamp> = trace.steps().iter().map(|step| (step.number(), step.end())).collect();
    let mut found = Vec::new();
    StepGpu::each(trace, |step| {
        let mut summary = Summary::default();
        let mut scalar = |name, value| summary.scalar(&tag::of_gpu(step.device.as_u32(), name), value);
        scalar(tag::BUSY, step.usage.busy_percent());
        scalar(tag::KERNELS, step.usage.kernels as f64);
        scalar(tag::COPIED, step.usage.copied as f64);
        step.peak_memory.iter().for_each(|&bytes| scalar(tag::PEAK_MEMORY, bytes as f64));
        step.usage.mfu().iter().for_each(|&mfu| scalar(tag::MFU, mfu));
        found.push((ends.get(&step.step).copied().unwrap_or(trace.end()), step.step, summary));
    });
    let mut lost = Summary::default();
    lost.scalar(tag::LOST, trace.losses().total() as f64);
    found.push((trace.end(), trace.steps().last().map_or(0, |step| step.number()), lost));
    found
}
