use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The number of a module's parameters, and their bytes.
///
/// ```
/// use kernspan_candle::Parameters;
/// # use candle_core::{DType, Device, Tensor};
/// let weight = Tensor::zeros((8, 4), DType::F32, &Device::Cpu)?;
/// let bias = Tensor::zeros(8, DType::BF16, &Device::Cpu)?;
/// assert_eq!(Parameters::of([&weight, &bias]), Parameters { count: 40, bytes: 4 * 32 + 2 * 8 });
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The number of elements.
    pub count: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Parameters {
    /// Sums up the elements and bytes of these tensors.
    pub fn of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Self {
        tensors.into_iter().fold(Self::default(), |total, tensor| {
            let count = tensor.elem_count() as u64;
            let bytes = count.saturating_mul(tensor.dtype().size_in_bytes() as u64);
            Self { count: total.count.saturating_add(count), bytes: total.bytes.saturating_add(bytes) }
        })
    }
}

/// Makes a module with a builder, and counts the parameters that it requests.
pub(crate) fn make_counted<M>(
    vb: VarBuilder<'_>,
    make: impl FnOnce(VarBuilder<'_>) -> Result<M>,
) -> Result<(M, Parameters)> {
    let requested = Arc::new(Mutex::new(HashMap::new()));
    let (prefix, dtype, device) = (vb.prefix(), vb.dtype(), vb.device().clone());
    let counting = CountingBackend { inner: vb.root(), requested: Arc::clone(&requested) };
    let counting = VarBuilder::from_backend(Box::new(counting), dtype, device);
    // Modules may ask the builder for their path, so it keeps the caller's prefix.
    let made = make(if prefix.is_empty() { counting } else { counting.set_prefix(prefix) })?;
    let requested = requested.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((made, Parameters::of(requested.values())))
}

/// A backend that gets tensors from another builder and remembers them.
struct CountingBackend<'a> {
    inner: VarBuilder<'a>,
    /// Tensors by name, because a shared tensor is requested more than once.
    requested: Arc<Mutex<HashMap<String, Tensor>>>,
}

impl CountingBackend<'_> {
    fn count(&self, name: &str, tensor: Tensor) -> Tensor {
        self.requested.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tensor.clone());
        tensor
    }
}

impl SimpleBackend for CountingBackend<'_> {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        let inner = self.inner.clone().set_device(device.clone());
        Ok(self.count(name, inner.get_with_hints_dtype(shape, name, init, dtype)?))
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let inner = self.inner.clone().set_device(device.clone());
        Ok(self.count(name, inner.get_unchecked_dtype(name, dtype)?))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.inner.contains_tensor(name)
    }
}
