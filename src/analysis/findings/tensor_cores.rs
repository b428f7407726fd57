//! Products of f32 matrices that tensor cores could compute.

use super::{
    super::{finding::FindingKind, matrix_kernel::MatrixKernel},
    chains::is_elementwise,
    place,
    window::{Candidate, Window},
    words,
};
use crate::trace::{Device, Span, Work};
use std::collections::HashSet;

/// How much of the ratio of both peaks a product gains, of the sizes that models have: 0.75 in `faults` of
/// `benches/gpu`, and 0.82 in the transformer of the trainings that was looked at, on an H200.
const GAIN: f64 = 0.75;

/// The same of convolutions, which move more bytes for each operation: TF32 makes those of ResNets two to four times as
/// fast, of the seven or eight that the peaks differ by.
const GAIN_OF_CONVOLUTIONS: f64 = 0.4;

/// The part of the time of convolutions up to which next to none use tensor cores.
const FEW: f64 = 0.1;

/// Finds kernels that multiply f32 matrices without tensor cores, on a GPU that has them.
pub(super) fn no_tensor_cores(window: &Window<'_>) -> Vec<Candidate> {
    let convolutions = convolutions_without(window);
    let found: Vec<_> = window
        .tasks()
        .filter_map(|(index, _, work)| {
            let ratio = ratio(window.device(work)?)?;
            let is_plain = MatrixKernel::of(&work.kernel()?.name) == Some(MatrixKernel::PlainF32);
            (is_plain || convolutions.contains(&index)).then_some((index, work, ratio))
        })
        .collect();
    let nanos = found.iter().map(|(_, work, _)| work.duration().as_nanos() as u64).sum();
    if found.is_empty() || window.is_negligible(nanos) {
        return Vec::new();
    }
    let faster = |part: f64| {
        let mut costs = window.costs();
        for (index, work, ratio) in &found {
            let is_convolution = convolutions.contains(index)
                || work.kernel().is_some_and(|kernel| MatrixKernel::is_convolution(&kernel.name));
            let gain = part * if is_convolution { GAIN_OF_CONVOLUTIONS } else { GAIN };
            costs.set_task(*index, (work.duration().as_nanos() as f64 / (ratio * gain).max(1.0)) as u64);
        }
        costs
    };
    let groups = window.groups(
        found.iter().map(|(index, work, _)| (*index, work.span().map(Span::id), work.duration().as_nanos() as u64)),
    );
    let span = groups.first().and_then(|group| group.span);
    let names: std::collections::BTreeSet<_> =
        found.iter().filter_map(|(_, work, _)| work.kernel()).map(|kernel| &*kernel.name).collect();
    let (tasks, ratio) = (found.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), found[0].2);
    vec![Candidate {
        kind: FindingKind::NoTensorCores,
        title: format!(
            "products of f32 matrices take {} of each step without tensor cores, mostly in {}",
            words::nanos(window.per_step(nanos)),
            place::name(window.trace(), span)
        ),
        span,
        evidence: vec![
            format!("{} products in a step.", words::digits(tasks.len() as f64 / window.count() as f64)),
            format!("Kernels: {}.", names.into_iter().take(3).collect::<Vec<_>>().join(", ")),
            format!(
                "By its data sheet this GPU is {} times as fast with TF32; assumes {GAIN} of that, and \
                 {GAIN_OF_CONVOLUTIONS} for convolutions.",
                words::digits(ratio)
            ),
        ],
        ranges: window.task_ranges(&tasks),
        costs: faster(1.0),
        least: Some(faster(0.5)),
        most: Some(faster(1.0 / GAIN)),
        others: Vec::new(),
    }]
}

/// Returns the kernels of PyTorch's convolutions if next to none of them uses tensor cores: cuDNN has many ways to
/// compute them in f32, such as by Fourier transforms. Where TF32 is allowed, few layers do without.
fn convolutions_without(window: &Window<'_>) -> HashSet<usize> {
    let is_convolution = |work: Work<'_>| {
        let is_one = |span: Span<'_>| span.callsite().target() == "cpu_op" && span.name().contains("convolution");
        work.span().is_some_and(|span| span.stack().any(is_one))
    };
    let is_f32 = |name: &str| !["half", "f16", "Half", "BFloat16"].iter().any(|part| name.contains(part));
    let (mut all, mut with, mut found) = (0, 0, HashSet::new());
    for (index, _, work) in window.tasks() {
        let Some(kernel) = work.kernel().filter(|kernel| !is_elementwise(&kernel.name) && is_convolution(work)) else {
            continue;
        };
        let nanos = work.duration().as_nanos() as u64;
        all += nanos;
        if MatrixKernel::of(&kernel.name) == Some(MatrixKernel::TensorCores) || !is_f32(&kernel.name) {
            with += nanos;
        }
        found.insert(index);
    }
    if (with as f64) < FEW * all as f64 { found } else { HashSet::new() }
}

/// How many times as fast as f32 a device is with TF32.
fn ratio(device: &Device) -> Option<f64> {
    let ratio = device.peak_flops("tf32")? / device.peak_flops("f32")?;
    (ratio > 1.5).then_some(ratio)
}
