//! Kernels that are too small to fill the GPU.

use super::{
    super::finding::FindingKind,
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Kernel, Span};

/// The part of the step and of the GPU's time that small kernels take, from which on the batch is small. If the GPU is
/// idle for most of a step, something else is the problem.
const SHARE: f64 = 0.5;
/// The number of batches that would fit at once, from which on it pays to say so.
const FITS: f64 = 2.0;

/// Finds steps whose kernels have fewer blocks than the GPU has multiprocessors.
pub(super) fn small_grid(window: &Window<'_>) -> Vec<Candidate> {
    let blocks = |kernel: &Kernel| kernel.grid.iter().map(|&length| f64::from(length)).product::<f64>();
    let (mut small, mut all, mut weighted) = (0, 0, 0.0);
    let mut found = Vec::new();
    for (index, _, work) in window.tasks() {
        let nanos = work.duration().as_nanos() as u64;
        all += nanos;
        let Some((kernel, device)) = work.kernel().zip(window.device(work)) else { continue };
        let fits = f64::from(device.multiprocessors) / blocks(kernel).max(1.0);
        if fits >= FITS {
            small += nanos;
            weighted += nanos as f64 / fits;
            found.push((index, work.span().map(Span::id), nanos));
        }
    }
    let step = window.step.as_nanos() as f64;
    if (small as f64) < SHARE * all as f64 || (window.per_step(small) as f64) < SHARE * step {
        return Vec::new();
    }
    // As many batches at once as fit, by the time that each kernel takes.
    let fits = small as f64 / weighted;
    let larger = |fits: f64| {
        let mut costs = window.costs();
        for (index, item) in window.simulation.items.iter().enumerate() {
            costs.scale_item(index, item.own_nanos() as f64 / fits);
        }
        for &(index, _, nanos) in &found {
            costs.set_task(index, (nanos as f64 / fits) as u64);
        }
        costs.scale_latencies(fits);
        costs
    };
    let device = window.trace().devices().first().map_or(0, |device| device.multiprocessors);
    let tasks: Vec<usize> = found.iter().map(|&(index, ..)| index).collect();
    let groups = window.groups(found.iter().copied());
    let span = groups.first().and_then(|group| group.span);
    vec![Candidate {
        kind: FindingKind::SmallGrid,
        title: format!(
            "kernels use {} of the GPU's {device} multiprocessors: a batch {} times as large would take as long",
            words::digits((f64::from(device) / fits).round()),
            words::digits(fits.floor()),
        ),
        span,
        evidence: vec![
            format!(
                "Kernels with fewer blocks than multiprocessors take {} of the GPU's {} in a step.",
                words::nanos(window.per_step(small)),
                words::nanos(window.per_step(all))
            ),
            format!("Most of it is in {}.", place::name(window.trace(), span)),
            "The saving is for as many samples as a step has now.".to_owned(),
        ],
        ranges: window.task_ranges(&tasks),
        costs: larger(fits),
        least: Some(larger(FITS)),
        most: None,
        others: Vec::new(),
    }]
}
