use candle_core::{DType, DeviceLocation, Tensor};
use std::fmt;

/// What a tensor is, but for its values.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    dims: Vec<usize>,
    dtype: DType,
    device: DeviceLocation,
}

/// The signatures of what an op was called with.
#[derive(Debug)]
pub(crate) struct Arguments(Vec<Signature>);

/// A device by name, as `cuda:0`.
pub(crate) struct DeviceName(DeviceLocation);

impl Signature {
    pub(crate) fn of(tensor: &Tensor) -> Self {
        Self { dims: tensor.dims().to_vec(), dtype: tensor.dtype(), device: tensor.device().location() }
    }

    pub(crate) fn is(&self, tensor: &Tensor) -> bool {
        self.dims == tensor.dims() && self.dtype == tensor.dtype() && self.device == tensor.device().location()
    }

    pub(crate) fn device_of(tensor: &Tensor) -> DeviceName {
        DeviceName(tensor.device().location())
    }
}

impl Arguments {
    pub(crate) fn of(tensors: &[&Tensor]) -> Self {
        Self(tensors.iter().map(|tensor| Signature::of(tensor)).collect())
    }

    pub(crate) fn are(&self, tensors: &[&Tensor]) -> bool {
        self.0.len() == tensors.len() && self.0.iter().zip(tensors).all(|(known, tensor)| known.is(tensor))
    }
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
