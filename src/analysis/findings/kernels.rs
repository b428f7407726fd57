//! Kernels that use little of the GPU: too few blocks to fill it, or products of matrices without tensor cores.

use super::{
    super::{
        collective_calls::is_collective,
        counter_use::{CounterBound, CounterSubject},
        finding::FindingKind,
        sorted::SortedSet,
    },
    chains::is_elementwise,
    window::{Candidate, Window},
    words,
};
use crate::{
    kernel_names::short_kernels,
    trace::{Device, Kernel, MetricMeaning, Span, Work},
};
use rustc_hash::{FxHashMap, FxHashSet};

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
    // Collectives have few blocks by design, and mostly wait.
    for (index, _, work) in window.tasks().filter(|(.., work)| !is_collective(*work)) {
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
            format!("Most of it is in {}.", words::place(window.trace(), span)),
            "The saving is for as many samples as a step has now.".to_owned(),
        ],
        ranges: window.task_ranges(&tasks),
        least: Some(larger(FITS)),
        ..Candidate::new(FindingKind::SmallGrid, larger(fits))
    }]
}

/// How much of the ratio of both peaks a product gains, of the sizes that models have: 0.75 in `faults` of
/// `benches/gpu`, and 0.82 in the transformer of the trainings that was looked at, on an H200.
const GAIN: f64 = 0.75;

/// The same of convolutions, which move more bytes for each operation: TF32 makes those of ResNets two to four times as
/// fast, of the seven or eight that the peaks differ by.
const GAIN_OF_CONVOLUTIONS: f64 = 0.4;

/// The part of the time of convolutions up to which next to none use tensor cores.
const FEW: f64 = 0.1;

/// The use of the tensor cores in percent from which on a kernel is known to use them: more than the error of a value.
const BUSY_TENSOR_CORES: f64 = 5.0;

/// Finds kernels that multiply matrices without tensor cores, on a GPU that has them: f32 by their names, and others by
/// the GPU's hardware counters.
pub(super) fn no_tensor_cores(window: &Window<'_>) -> Vec<Candidate> {
    let convolutions = convolutions_without(window);
    let (mut known, mut unnamed) = (FxHashMap::default(), SortedSet::default());
    let mut found = Vec::new();
    for (index, _, work) in window.tasks() {
        let Some(ratio) = window.device(work).and_then(ratio) else { continue };
        let Some(name) = work.kernel().map(|kernel| &*kernel.name) else { continue };
        let is_convolution = convolutions.contains(&index);
        match *known.entry((name, is_convolution)).or_insert_with(|| lacks_tensor_cores(window, name, is_convolution)) {
            Some(Evidence::Name) => {}
            Some(Evidence::Counters) => _ = unnamed.insert(name),
            None => continue,
        }
        found.push((index, work, ratio));
    }
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
    let names: SortedSet<_> =
        found.iter().filter_map(|(_, work, _)| work.kernel()).map(|kernel| &*kernel.name).collect();
    let names = short_kernels(&names.into_iter().collect::<Vec<_>>());
    let (tasks, ratio) = (found.iter().map(|(index, ..)| *index).collect::<Vec<_>>(), found[0].2);
    let mut evidence = vec![
        format!("{} products in a step.", words::digits(tasks.len() as f64 / window.count() as f64)),
        format!("Kernels: {}.", names.into_iter().take(3).collect::<Vec<_>>().join(", ")),
        format!(
            "By its data sheet this GPU is {} times as fast with TF32; assumes {GAIN} of that, and \
             {GAIN_OF_CONVOLUTIONS} for convolutions.",
            words::digits(ratio)
        ),
    ];
    let is_by_name = unnamed.is_empty();
    if !is_by_name {
        let names = unnamed.into_iter().take(3).collect::<Vec<_>>().join(", ");
        evidence.push(format!(
            "The names of some do not say so, but hardware counters do: tensor cores and memory are idle in {names}."
        ));
    }
    vec![Candidate {
        title: format!(
            "products of {}matrices take {} of each step without tensor cores, mostly in {}",
            if is_by_name { "f32 " } else { "" },
            words::nanos(window.per_step(nanos)),
            words::place(window.trace(), span)
        ),
        span,
        evidence,
        ranges: window.task_ranges(&tasks),
        least: Some(faster(0.5)),
        most: Some(faster(1.0 / GAIN)),
        ..Candidate::new(FindingKind::NoTensorCores, faster(1.0))
    }]
}

/// What says that a kernel multiplies matrices without tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The name, and no counters that say otherwise.
    Name,
    /// The counters, where the name says only that it multiplies matrices.
    Counters,
}

/// Returns what says that a kernel would be faster with tensor cores, if anything does.
fn lacks_tensor_cores(window: &Window<'_>, kernel: &str, is_convolution: bool) -> Option<Evidence> {
    let subject = CounterSubject::Kernel(kernel.to_owned());
    let uses_them = |tensor: f64| tensor > BUSY_TENSOR_CORES;
    // A name is a guess; counters know. What waits for memory would wait as long with tensor cores.
    if window.counter(&subject, MetricMeaning::TensorActive).is_some_and(uses_them)
        || window.counter(&subject, MetricMeaning::DramActive).is_some_and(|dram| dram >= CounterBound::BUSY)
    {
        return None;
    }
    match MatrixKernel::of(kernel) {
        Some(MatrixKernel::PlainF32) => Some(Evidence::Name),
        _ if is_convolution => Some(Evidence::Name),
        Some(MatrixKernel::Unsaid) => (window.bound(kernel) == Some(CounterBound::Sm)).then_some(Evidence::Counters),
        _ => None,
    }
}

/// Returns the kernels of PyTorch's convolutions if next to none of them uses tensor cores: cuDNN has many ways to
/// compute them in f32, such as by Fourier transforms. Where TF32 is allowed, few layers do without.
fn convolutions_without(window: &Window<'_>) -> FxHashSet<usize> {
    let is_convolution = |work: Work<'_>| {
        let is_one = |span: Span<'_>| span.callsite().target() == "cpu_op" && span.name().contains("convolution");
        work.span().is_some_and(|span| span.stack().any(is_one))
    };
    let is_f32 = |name: &str| !["half", "f16", "Half", "BFloat16"].iter().any(|part| name.contains(part));
    let (mut all, mut with, mut found) = (0, 0, FxHashSet::default());
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
    if (with as f64) < FEW * all as f64 { found } else { FxHashSet::default() }
}

/// How many times as fast as f32 a device is with TF32.
fn ratio(device: &Device) -> Option<f64> {
    let ratio = device.peak_flops("tf32")? / device.peak_flops("f32")?;
    (ratio > 1.5).then_some(ratio)
}

/// A kernel that multiplies matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatrixKernel {
    /// It uses tensor cores.
    TensorCores,
    /// It multiplies `f32` without them.
    PlainF32,
    /// The name does not say how it multiplies.
    Unsaid,
}

impl MatrixKernel {
    /// Parts of names of cuBLAS, cuDNN, CUTLASS and Flash Attention that use tensor cores.
    const TENSOR_CORES: [&str; 14] = [
        "tensorop",
        "s1688",
        "s884",
        "h884",
        "16816",
        "hmma",
        "imma",
        "qmma",
        "wgmma",
        "gmma",
        "tf32",
        "bf16gemm",
        "h1688",
        "flash_fwd",
    ];
    /// Parts of names of products of `f32` without tensor cores.
    const PLAIN_F32: [&str; 6] = ["sgemm", "f32f32_f32f32", "gemmsn", "gemm_sn", "scudnn", "simt_s"];
    /// Parts of names of other products.
    const PRODUCTS: [&str; 2] = ["gemm", "matmul"];
    /// Parts of names of products of numbers for which tensor cores are no alternative, or not at this ratio: `f64`,
    /// complex, integers.
    const OTHER_NUMBERS: [&str; 8] = ["dgemm", "cgemm", "zgemm", "igemm", "f64", "double", "complex", "int8"];
    /// Parts of names of convolutions.
    const CONVOLUTIONS: [&str; 5] = ["fprop", "dgrad", "wgrad", "conv", "scudnn"];

    /// Whether a kernel of this name computes a convolution.
    fn is_convolution(kernel: &str) -> bool {
        let name = kernel.to_ascii_lowercase();
        Self::CONVOLUTIONS.iter().any(|part| name.contains(part))
    }

    /// Returns what a kernel of this name does, if the name says that it multiplies matrices.
    fn of(kernel: &str) -> Option<Self> {
        let name = kernel.to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        match () {
            () if has(&Self::TENSOR_CORES) => Some(Self::TensorCores),
            () if has(&Self::PLAIN_F32) => Some(Self::PlainF32),
            () if has(&Self::PRODUCTS) && !has(&Self::OTHER_NUMBERS) => Some(Self::Unsaid),
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MatrixKernel;

    #[test]
    fn names_of_kernels_say_it() {
        let plain = Some(MatrixKernel::PlainF32);
        let tensor = Some(MatrixKernel::TensorCores);
        for (name, expected) in [
            ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize256x128x8_stage3_warpsize4x2x1_ffma", plain),
            ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>", plain),
            ("ampere_sgemm_128x64_nn", plain),
            ("sm80_xmma_fprop_implicit_gemm_indexed_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x32x8_ffma", plain),
            ("_5x_cudnn_ampere_scudnn_128x64_relu_small_nn_v1", plain),
            ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8", tensor),
            ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", tensor),
            ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1_wgmma", tensor),
            ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>", tensor),
            ("void at::native::vectorized_elementwise_kernel<4, float>", None),
            ("matmul_entry_f32_unit_tile", Some(MatrixKernel::Unsaid)),
            ("volta_dgemm_128x64_nn", None),
            ("layer_forward", None),
        ] {
            assert_eq!(MatrixKernel::of(name), expected, "{name}");
        }
    }
}
