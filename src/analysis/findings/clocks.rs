//! GPUs whose clock is below its maximum while they work, by their hardware counters.

use super::{
    super::{collective_calls::is_collective, counter_use::CounterBound, finding::FindingKind},
    window::{Candidate, Window},
    words,
};
use crate::trace::{Device, Span};
use rustc_hash::FxHashMap;

/// The part of its highest frequency from which on a clock is not low: boost clocks differ by some percent in any run.
const HIGH: f64 = 0.9;

/// Finds GPUs whose SM clock is low while kernels run that would be faster at a higher one.
pub(super) fn low_clock(window: &Window<'_>) -> Vec<Candidate> {
    window.trace().devices().iter().filter_map(|device| of_device(window, device)).collect()
}

fn of_device(window: &Window<'_>, device: &Device) -> Option<Candidate> {
    let (clock, highest) = (window.sm_clock(device.id)?, 1e3 * f64::from(device.clock_khz));
    let part = clock / highest;
    if !(part > 0.0 && part < HIGH) {
        return None;
    }
    let mut bounds = FxHashMap::default();
    // Kernels that the SMs limit, those that may be limited by something else, and the time of all.
    let (mut limited, mut others, mut all) = (Vec::new(), Vec::new(), 0);
    for (index, _, work) in window.tasks().filter(|(.., work)| work.stream().device() == device.id) {
        let nanos = work.duration().as_nanos() as u64;
        all += nanos;
        let Some(kernel) = work.kernel().filter(|_| !is_collective(work)) else { continue };
        match *bounds.entry(&*kernel.name).or_insert_with(|| window.bound(&kernel.name)) {
            Some(CounterBound::Tensor | CounterBound::Sm) => limited.push((index, work.span().map(Span::id), nanos)),
            // The memory has a clock of its own.
            Some(CounterBound::Memory) => {}
            Some(CounterBound::Idle) | None => others.push((index, nanos)),
        }
    }
    let nanos = limited.iter().map(|&(.., nanos)| nanos).sum();
    if window.is_negligible(nanos) {
        return None;
    }
    let faster = |with_others: bool| {
        let mut costs = window.costs();
        let limited = limited.iter().map(|&(index, _, nanos)| (index, nanos));
        for (index, nanos) in limited.chain(others.iter().copied().filter(|_| with_others)) {
            costs.set_task(index, (nanos as f64 * part) as u64);
        }
        costs
    };
    let tasks: Vec<usize> = limited.iter().map(|&(index, ..)| index).collect();
    let span = window.groups(limited.iter().copied()).first().and_then(|group| group.span);
    let (clock, highest) = (format!("{:.0} MHz", clock / 1e6), format!("{:.0} MHz", highest / 1e6));
    Some(Candidate {
        title: format!(
            "the clock of GPU {} is {clock} of {highest}, which slows down kernels, mostly in {}",
            device.id,
            words::place(window.trace(), span)
        ),
        span,
        evidence: vec![
            format!("{clock} is the mean of the hardware counters from the first to the last work of each step."),
            format!(
                "Kernels that the SMs or the tensor cores limit take {} of the GPU's {} in a step.",
                words::nanos(window.per_step(nanos)),
                words::nanos(window.per_step(all))
            ),
        ],
        ranges: window.task_ranges(&tasks),
        most: Some(faster(true)),
        ..Candidate::new(FindingKind::LowClock, faster(false))
    })
}
