use super::{arguments::Arguments, description::Description, kind::OperationKind};
use burn::{
    backend::ir::{OperationIr, TensorIr},
    tensor::DType,
};
use rustc_hash::FxHashMap;
use std::{fmt, ptr, sync::Arc};

/// A bounded cache of values that are made from [`Description`]s, one for each different operation.
///
/// Two operations are equal if their descriptions are: the same kind, shapes, element types and window sizes. The
/// identity of the tensors, their elements and scalars do not matter. A lookup that finds a value does not allocate, so
/// it can be done for every operation that Burn registers (`cargo bench -p kernspan-burn --bench operations`).
///
/// When the cache is full, a new operation gets a value made from a description that has only the name, one for each
/// name, and is counted by [`uncached`](Self::uncached).
///
/// ```
/// use burn::{
///     backend::ir::{BaseOperationIr, CreationOpIr, OperationIr, TensorId, TensorIr},
///     tensor::{DType, Shape},
/// };
/// use kernspan_burn::DescriptionCache;
///
/// let zeros = |id, dims: [usize; 2]| {
///     let out = TensorIr::uninit(TensorId::new(id), Shape::new(dims), DType::F32);
///     OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out }))
/// };
/// let mut labels = DescriptionCache::new();
/// let mut label = |operation| labels.get(&operation, |about| format!("{} {:?}", about.name, about.fields));
/// let first = label(zeros(0, [8, 16]));
/// assert!(std::sync::Arc::ptr_eq(&first, &label(zeros(1, [8, 16]))));
/// assert_ne!(first, label(zeros(2, [16, 8])));
/// ```
pub struct DescriptionCache<D> {
    values: FxHashMap<Box<[usize]>, Arc<D>>,
    by_name: FxHashMap<&'static str, Arc<D>>,
    limit: usize,
    uncached: u64,
    key: Key,
}

/// The content of a description as a sequence of numbers, in a buffer that is reused.
#[derive(Debug, Default)]
struct Key {
    words: Vec<usize>,
    /// The element types so far; the number of a type is its index.
    dtypes: Vec<DType>,
}

impl<D> DescriptionCache<D> {
    /// The default limit of a cache.
    pub const DEFAULT_LIMIT: usize = 10_000;

    /// Makes an empty cache of at most [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT) values.
    pub fn new() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }

    /// Makes an empty cache of at most `limit` values, not counting those that are made from a name alone.
    pub fn with_limit(limit: usize) -> Self {
        Self { values: FxHashMap::default(), by_name: FxHashMap::default(), limit, uncached: 0, key: Key::default() }
    }

    /// Returns the value of an equal operation, or makes one from the description of this operation.
    pub fn get(&mut self, operation: &OperationIr, make: impl FnOnce(Description) -> D) -> Arc<D> {
        let (kind, arguments) = OperationKind::of(operation);
        let key = self.key.of(kind, &arguments);
        if let Some(value) = self.values.get(key) {
            return Arc::clone(value);
        }
        if self.values.len() >= self.limit {
            self.uncached += 1;
            let named = self.by_name.entry(kind.name).or_insert_with(|| Arc::new(make(Description::named(kind.name))));
            return Arc::clone(named);
        }
        let value = Arc::new(make(Description::new(kind, &arguments)));
        self.values.insert(key.into(), Arc::clone(&value));
        value
    }

    /// Returns the number of operations that got a value made from their name alone, because the cache was full.
    pub fn uncached(&self) -> u64 {
        self.uncached
    }
}

impl Key {
    /// Returns the key of an operation. Two keys are equal only if the operations are, because each variable part is
    /// preceded by its length.
    fn of(&mut self, kind: &'static OperationKind, arguments: &Arguments<'_>) -> &[usize] {
        self.words.clear();
        let work_per_element = usize::try_from(arguments.work_per_element).unwrap_or(usize::MAX);
        self.words.extend([ptr::from_ref(kind).addr(), work_per_element, arguments.id.len()]);
        self.words.extend(arguments.id.bytes().map(usize::from));
        for (named, unnamed) in arguments.named_and_unnamed() {
            self.words.push(unnamed.len());
            named.iter().for_each(|&tensor| self.push(tensor));
            unnamed.iter().for_each(|tensor| self.push(Some(tensor)));
        }
        &self.words
    }

    fn push(&mut self, tensor: Option<&TensorIr>) {
        let Some(tensor) = tensor else { return self.words.push(usize::MAX) };
        let dtype = match self.dtypes.iter().position(|dtype| *dtype == tensor.dtype) {
            Some(index) => index,
            None => {
                self.dtypes.push(tensor.dtype);
                self.dtypes.len() - 1
            }
        };
        self.words.extend([dtype, tensor.shape.len()]);
        self.words.extend_from_slice(&tensor.shape);
    }
}

impl<D> Default for DescriptionCache<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> fmt::Debug for DescriptionCache<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DescriptionCache")
            .field("values", &self.values.len())
            .field("limit", &self.limit)
            .field("uncached", &self.uncached)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::DescriptionCache;
    use burn::{
        backend::ir::{
            AvgPool1dOpIr, BaseOperationIr, CatOpIr, CustomOpIr, InitOperationIr, LinearOpIr, ModuleOperationIr,
            OperationIr, TensorId, TensorIr,
        },
        tensor::{DType, Shape},
    };

    fn tensor(dims: &[usize]) -> TensorIr {
        TensorIr::uninit(TensorId::new(0), Shape::from(dims.to_vec()), DType::F32)
    }

    fn init(dims: &[usize]) -> OperationIr {
        OperationIr::Init(InitOperationIr { out: tensor(dims) })
    }

    fn cat(tensors: &[&[usize]]) -> OperationIr {
        let tensors = tensors.iter().map(|dims| tensor(dims)).collect();
        OperationIr::BaseFloat(BaseOperationIr::Cat(CatOpIr { tensors, dim: 0, out: tensor(&[1]) }))
    }

    fn pool(kernel_size: usize) -> OperationIr {
        let (x, out) = (tensor(&[1, 1, 8]), tensor(&[1, 1, 4]));
        let ir =
            AvgPool1dOpIr { x, kernel_size, stride: 2, padding: 0, count_include_pad: true, ceil_mode: false, out };
        OperationIr::Module(ModuleOperationIr::AvgPool1d(ir))
    }

    fn linear(bias: bool) -> OperationIr {
        let bias = bias.then(|| tensor(&[4]));
        let ir = LinearOpIr { x: tensor(&[8, 2]), weight: tensor(&[2, 4]), bias, out: tensor(&[8, 4]) };
        OperationIr::Module(ModuleOperationIr::Linear(ir))
    }

    fn custom(id: &'static str) -> OperationIr {
        OperationIr::Custom(CustomOpIr::new(id, &[tensor(&[2])], &[tensor(&[2])]))
    }

    #[test]
    fn operations_with_different_descriptions_are_different() {
        let half = TensorIr { dtype: DType::F16, ..tensor(&[2, 3]) };
        let different = [
            init(&[2, 3]),
            init(&[3, 2]),
            init(&[6]),
            init(&[2, 3, 1]),
            OperationIr::Init(InitOperationIr { out: half }),
            cat(&[&[2, 3], &[4]]),
            cat(&[&[2], &[3, 4]]),
            cat(&[&[2], &[3], &[4]]),
            pool(2),
            pool(3),
            linear(true),
            linear(false),
            custom("a"),
            custom("b"),
        ];
        let mut cache = DescriptionCache::new();
        let mut made = 0;
        for operation in different.iter().chain(&different) {
            cache.get(operation, |_| made += 1);
        }
        assert_eq!(made, different.len());
    }

    #[test]
    fn a_full_cache_makes_values_from_names_alone() {
        let mut cache = DescriptionCache::with_limit(2);
        let mut fields = |dims: &[usize]| cache.get(&init(dims), |description| description.fields.len());
        let full = fields(&[1]);
        assert!(*full > 0);
        fields(&[2]);
        assert_eq!([fields(&[3]), fields(&[4]), fields(&[1])].map(|fields| *fields), [0, 0, *full]);
        assert_eq!(cache.uncached(), 2);
    }
}
