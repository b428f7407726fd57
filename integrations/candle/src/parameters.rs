use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::{Init, VarBuilder, var_builder::SimpleBackend};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// How many parameters there are, and how many bytes they take.
///
/// ```
/// use kernspan_candle::Parameters;
/// # use candle_core::{DType, Device, Tensor};
/// let (weight, bias) = (Tensor::zeros((8, 4), DType::F32, &Device::Cpu)?, Tensor::zeros(8, DType::BF16, &Device::Cpu)?);
/// assert_eq!(Parameters::of([&weight, &bias]), Parameters { count: 40, bytes: 4 * 32 + 2 * 8 });
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// How many numbers.
    pub count: u64,
    /// How many bytes.
    pub bytes: u64,
}

impl Parameters {
    /// Those of these tensors.
    pub fn of<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Self {
        tensors.into_iter().fold(Self::default(), |all, tensor| {
            let count = tensor.elem_count() as u64;
            let bytes = count.saturating_mul(tensor.dtype().size_in_bytes() as u64);
            Self { count: all.count.saturating_add(count), bytes: all.bytes.saturating_add(bytes) }
        })
    }
}

/// Makes something with a builder, and counts the parameters that it asks for.
pub(crate) fn counted<M>(
    vb: VarBuilder<'_>,
    make: impl FnOnce(VarBuilder<'_>) -> Result<M>,
) -> Result<(M, Parameters)> {
    let asked = Arc::new(Mutex::new(HashMap::new()));
    let (prefix, dtype, device) = (vb.prefix(), vb.dtype(), vb.device().clone());
    let counting = Counting { inner: vb.root(), asked: Arc::clone(&asked) };
    let counting = VarBuilder::from_backend(Box::new(counting), dtype, device);
    // As the caller named it, for those who ask for their path.
    let made = make(if prefix.is_empty() { counting } else { counting.set_prefix(prefix) })?;
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    Ok((made, Parameters::of(asked.values())))
}

/// Gets tensors from another builder.
struct Counting<'a> {
    inner: VarBuilder<'a>,
    /// By name: what is shared is asked for more than once.
    asked: Arc<Mutex<HashMap<String, Tensor>>>,
}

impl Counting<'_> {
    fn count(&self, name: &str, tensor: Tensor) -> Tensor {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), tensor.clone());
        tensor
    }
}

impl SimpleBackend for Counting<'_> {
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
