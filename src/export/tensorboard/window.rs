//! Scalars that only a recorded window has: the report's figures for each step, and the losses.

use super::{summary::Summary, tag};
use crate::{
    analysis::Analysis,
    trace::{Step, Timestamp},
};
use std::collections::BTreeMap;

/// Returns the scalars of each step of a window, and those of the window itself, at its last step if it has one. Each
/// comes with its time and the step's number in the trace.
pub(super) fn scalars(window: &Analysis<'_>) -> Vec<(Timestamp, Option<u64>, Summary)> {
    let trace = window.trace();
    let ends: BTreeMap<u64, Timestamp> = trace.steps().iter().map(|step| (step.number(), step.end())).collect();
    let mut found = Vec::new();
    for step in window.gpu_steps() {
        let mut summary = Summary::default();
        let mut scalar = |name, value| summary.scalar(&tag::of_gpu(step.device.as_u32(), name), value);
        scalar(tag::BUSY, step.usage.busy_percent());
        scalar(tag::KERNELS, step.usage.kernels as f64);
        scalar(tag::COPIED, step.usage.copied as f64);
        step.peak_memory.iter().for_each(|&bytes| scalar(tag::PEAK_MEMORY, bytes as f64));
        step.usage.mfu().iter().for_each(|&mfu| scalar(tag::MFU, mfu));
        found.push((ends.get(&step.step).copied().unwrap_or(trace.end()), Some(step.step), summary));
    }
    let mut lost = Summary::default();
    lost.scalar(tag::LOST, trace.losses().total() as f64);
    found.push((trace.end(), trace.steps().last().map(Step::number), lost));
    found
}

#[cfg(test)]
mod tests {
    use super::{Summary, scalars};
    use crate::{
        analysis::Analysis,
        report::Report,
        trace::{
            DeviceId, Trace,
            sample::{at, gpu_trace, memory_trace, set_flops},
        },
    };

    #[test]
    fn steps_have_the_numbers_of_the_report() {
        let mut trace = gpu_trace();
        set_flops(&mut trace, 1, 1_000_000, "f32");
        trace.losses.late = 3;
        trace.allocations = memory_trace(&[(1, Some(20), 120, None)]).allocations;
        let mfu = Report::of([&trace]).gpu_steps().steps()[0].usage.mfu().unwrap();
        let of = |values: &[(&str, f64)]| {
            let mut summary = Summary::default();
            values.iter().for_each(|&(tag, value)| summary.scalar(tag, value));
            summary.as_bytes().to_vec()
        };
        let found: Vec<_> = scalars(&Analysis::of(&trace))
            .iter()
            .map(|(at, step, summary)| (*at, *step, summary.as_bytes().to_vec()))
            .collect();
        let common = |busy| {
            [
                ("gpu/busy_percent", busy),
                ("gpu/kernels", 3.0),
                ("gpu/copied_bytes", 4000.0),
                ("gpu/peak_memory_bytes", 120.0),
            ]
        };
        let first = [&common(54.0)[..], &[("gpu/mfu_percent", mfu)]].concat();
        assert_eq!(
            found,
            [
                (at(100), Some(5), of(&first)),
                (at(200), Some(6), of(&common(59.0))),
                (at(200), Some(6), of(&[("profiler/lost", 3.0)]))
            ]
        );
        let without_steps = Trace { losses: trace.losses, ..Trace::default() };
        let [(_, step, lost)] = &scalars(&Analysis::of(&without_steps))[..] else {
            panic!("{:?}", scalars(&Analysis::of(&without_steps)))
        };
        assert_eq!((step, lost.as_bytes()), (&None, &of(&[("profiler/lost", 3.0)])[..]));
    }

    #[test]
    fn other_gpus_have_numbers() {
        let mut trace = gpu_trace();
        trace.streams.iter_mut().for_each(|stream| stream.device = DeviceId::new(3));
        let text = String::from_utf8_lossy(scalars(&Analysis::of(&trace))[0].2.as_bytes()).into_owned();
        assert!(text.contains("gpu3/busy_percent") && !text.contains("gpu/"), "{text}");
    }
}
