//! The time of kernels by how well they use a GPU.

use super::matrix_kernel::MatrixKernel;
use crate::trace::{DeviceId, Trace};
use std::{collections::BTreeMap, time::Duration};

/// The time of a GPU's kernels, by how well they use it. Each kernel counts in all fields that it belongs to, and work
/// that ran at the same time counts twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct KernelClasses {
    /// The GPU.
    pub device: DeviceId,
    /// The time of all kernels.
    pub total: Duration,
    /// The time of kernels whose names say that they use tensor cores.
    pub tensor_cores: Duration,
    /// The time of kernels whose names say that they multiply `f32` matrices without tensor cores.
    pub plain_products: Duration,
    /// The time of kernels with fewer blocks than the GPU has multiprocessors.
    pub small: Duration,
    /// The time of other kernels that fill less than a quarter of the GPU's warps while they run: see
    /// [`Device::occupancy`](crate::trace::Device::occupancy).
    pub low_occupancy: Duration,
    /// The time of kernels that take less than [`KernelClasses::SHORT`], about as long as it takes to launch one.
    pub short: Duration,
}

impl KernelClasses {
    /// The time of a kernel up to which it is short.
    pub const SHORT: Duration = Duration::from_micros(5);
    /// The percentage of a GPU's warps below which occupancy is low.
    const LOW_OCCUPANCY: f64 = 25.0;

    fn new(device: DeviceId) -> Self {
        let zero = Duration::ZERO;
        Self {
            device,
            total: zero,
            tensor_cores: zero,
            plain_products: zero,
            small: zero,
            low_occupancy: zero,
            short: zero,
        }
    }
}

/// Returns the time of the kernels of each GPU that ran any, by how well they use it.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for gpu in kernspan::analysis::kernel_classes(trace) {
///     println!("GPU {}: {:?} of {:?} on tensor cores", gpu.device, gpu.tensor_cores, gpu.total);
/// }
/// # }
/// ```
#[must_use]
pub fn kernel_classes(trace: &Trace) -> Vec<KernelClasses> {
    let mut devices: BTreeMap<DeviceId, KernelClasses> = BTreeMap::new();
    // Kernels are many and their names few.
    let mut names: BTreeMap<&str, Option<MatrixKernel>> = BTreeMap::new();
    for work in trace.work() {
        let Some(kernel) = work.kernel() else { continue };
        let (id, duration) = (work.stream().device(), work.duration());
        let classes = devices.entry(id).or_insert_with(|| KernelClasses::new(id));
        let mut add = |is_one: bool, sum: fn(&mut KernelClasses) -> &mut Duration| {
            if is_one {
                let sum = sum(classes);
                *sum = sum.saturating_add(duration);
            }
        };
        let matrix = *names.entry(&kernel.name).or_insert_with(|| MatrixKernel::of(&kernel.name));
        let occupancy = trace.device(id).and_then(|device| device.occupancy(kernel));
        let is_small = occupancy.is_some_and(|occupancy| occupancy.blocks_per_multiprocessor < 1.0);
        let is_low = occupancy.is_some_and(|occupancy| occupancy.percent < KernelClasses::LOW_OCCUPANCY);
        add(true, |classes| &mut classes.total);
        add(matrix == Some(MatrixKernel::TensorCores), |classes| &mut classes.tensor_cores);
        add(matrix == Some(MatrixKernel::PlainF32), |classes| &mut classes.plain_products);
        add(is_small, |classes| &mut classes.small);
        add(is_low && !is_small, |classes| &mut classes.low_occupancy);
        add(duration < KernelClasses::SHORT, |classes| &mut classes.short);
    }
    devices.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::kernel_classes;
    use crate::{
        Trace,
        trace::{Work, sample::gpu_trace},
    };
    use std::time::Duration;

    #[test]
    fn classes_are_parts_of_the_total() {
        let trace = gpu_trace();
        let [gpu] = kernel_classes(&trace)[..] else { panic!("one GPU") };
        let kernels = trace.work().filter(|work| work.kernel().is_some());
        assert_eq!(gpu.total, kernels.map(Work::duration).sum());
        // All kernels of the sample have 48 blocks, of 132 multiprocessors.
        assert_eq!((gpu.small, gpu.low_occupancy), (gpu.total, Duration::ZERO));
        assert_eq!((gpu.tensor_cores, gpu.plain_products), (Duration::ZERO, Duration::ZERO));
        assert_eq!(kernel_classes(&Trace::default()), []);
    }

    #[cfg(all(feature = "cuda", target_os = "linux"))]
    #[test]
    fn products_are_told_from_other_kernels() {
        for (name, is_plain) in [("f32-matmul-faulty", true), ("f32-matmul-repaired", false)] {
            let path = format!("{}/tests/fixtures/faults/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
            let trace = crate::replay(std::fs::File::open(path).unwrap()).unwrap();
            let [gpu] = kernel_classes(&trace)[..] else { panic!("one GPU") };
            let (products, others) =
                if is_plain { (gpu.plain_products, gpu.tensor_cores) } else { (gpu.tensor_cores, gpu.plain_products) };
            assert!(products > gpu.total / 2, "{name}: {gpu:?}");
            assert_eq!(others, Duration::ZERO, "{name}: {gpu:?}");
        }
    }
}
