//! Steps that TensorBoard's plugin can show.

use crate::{
    export::chrome::flavor::Flavor,
    trace::{Timestamp, Trace},
};

/// Returns for each step whether it is called `ProfilerStep#N`, so that readers recognize it as a step.
pub(in super::super) fn steps_shown(trace: &Trace, flavor: Flavor) -> Vec<bool> {
    match flavor {
        Flavor::Kineto => vec![true; trace.steps().len()],
        Flavor::TorchTensorBoard => steps_with_time(trace),
    }
}

/// Returns for each step whether it has any time left in the plugin.
///
/// In the plugin, a step begins when the GPU has done everything that the previous step launched. The plugin divides by
/// the remaining time, and loses the whole file if that is zero.
pub(super) fn steps_with_time(trace: &Trace) -> Vec<bool> {
    let steps = trace.steps();
    let mut device_ends: Vec<Option<Timestamp>> = vec![None; steps.len()];
    for (call, end) in trace.work().filter_map(|work| Some((work.call()?, work.end()))) {
        let after = steps.partition_point(|step| step.start() <= call.start());
        if let Some(step) = after.checked_sub(1).filter(|step| call.end() <= steps[*step].end()) {
            device_ends[step] = device_ends[step].max(Some(end));
        }
    }
    let uses_gpu = device_ends.iter().any(Option::is_some);
    let mut until = Timestamp::default();
    let each = steps.iter().zip(device_ends).map(|(step, device_end)| {
        let start = if uses_gpu { step.start().max(until) } else { step.start() };
        until = Some(step.end()).max(device_end).unwrap_or_default().max(start);
        start < until
    });
    each.collect()
}
