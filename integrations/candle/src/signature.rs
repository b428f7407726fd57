use candle_core::{DType, DeviceLocation, Tensor};
use std::fmt;

/// The shape, element type and device of a tensor.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    dims: Vec<usize>,
    dtype: DType,
    device: DeviceLocation,
}

/// The signatures of an op's inputs, and the element type of its products.
#[derive(Debug)]
pub(crate) struct Arguments {
    signatures: Vec<Signature>,
    compute: Option<&'static str>,
}

/// A device that is displayed by name, such as `cuda:0`.
pub(crate) struct DeviceName(DeviceLocation);

impl Signature {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        Self { dims: tensor.dims().to_vec(), dtype: tensor.dtype(), device: tensor.device().location() }
    }

    pub(crate) fn matches(&self, tensor: &Tensor) -> bool {
        self.dims == tensor.dims() && self.dtype == tensor.dtype() && self.device == tensor.device().location()
    }

    pub(crate) fn device_of(tensor: &Tensor) -> DeviceName {
        DeviceName(tensor.device().location())
    }
}

impl Arguments {
    pub(crate) fn of(tensors: &[&Tensor]) -> Self {
        let signatures = tensors.iter().map(|tensor| Signature::of(tensor)).collect();
        Self { signatures, compute: compute_of(tensors) }
    }

    pub(crate) fn matches(&self, tensors: &[&Tensor]) -> bool {
        self.signatures.len() == tensors.len()
            && self.signatures.iter().zip(tensors).all(|(signature, tensor)| signature.matches(tensor))
            && self.compute == compute_of(tensors)
    }

    /// Returns the type that products of these inputs are computed with, if it is not their own.
    pub(crate) fn compute(&self) -> Option<&'static str> {
        self.compute
    }
}

/// Returns `tf32` if Candle computes products of these tensors with it, which is a global option for `f32` on a GPU.
fn compute_of(tensors: &[&Tensor]) -> Option<&'static str> {
    let on_gpu = |tensor: &&Tensor| tensor.dtype() == DType::F32 && tensor.device().is_cuda();
    let reduced = tensors.first().is_some_and(on_gpu) && candle_core::cuda::gemm_reduced_precision_f32();
    reduced.then_some("tf32")
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeviceLocation::Cpu => f.write_str("cpu"),
            DeviceLocation::Cuda { gpu_id } => write!(f, "cuda:{gpu_id}"),
            DeviceLocation::Metal { gpu_id } => write!(f, "metal:{gpu_id}"),
        }
    }
}
