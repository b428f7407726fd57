use super::{Description, Known, arguments::Arguments};
use burn::{
    backend::ir::{OperationIr, TensorIr},
    tensor::DType,
};
use rustc_hash::FxHashMap;
use std::{fmt, ptr, sync::Arc};

/// What was made of the [`Description`]s of operations, each once.
///
/// Operations are the same if all is that a description says: what they are, their tensors' shapes and element types, and the sizes of
/// windows. Which tensors they are, what numbers they hold, and scalars do not matter. To find one that is known takes no allocation, so
/// this may be asked for each operation that Burn registers (`cargo bench -p kernspan-burn --bench operations`).
///
/// There are at most as many as it is told to keep. Operations that come after that have a description that only has the name, one for
/// each name, and are counted in [`unkept`](Self::unkept).
///
/// ```
/// use burn::{
///     backend::ir::{BaseOperationIr, CreationOpIr, OperationIr, TensorId, TensorIr},
///     tensor::{DType, Shape},
/// };
/// use kernspan_burn::Descriptions;
///
/// let zeros = |id, dims: [usize; 2]| {
///     let out = TensorIr::uninit(TensorId::new(id), Shape::new(dims), DType::F32);
///     OperationIr::BaseFloat(BaseOperationIr::Zeros(CreationOpIr { out }))
/// };
/// let mut labels = Descriptions::new();
/// let mut label = |operation| labels.get(&operation, |description| format!("{} {:?}", description.name, description.fields));
/// let first = label(zeros(0, [8, 16]));
/// assert!(std::sync::Arc::ptr_eq(&first, &label(zeros(1, [8, 16]))));
/// assert_ne!(first, label(zeros(2, [16, 8])));
/// ```
pub struct Descriptions<D> {
    made: FxHashMap<Box<[usize]>, Arc<D>>,
    names: FxHashMap<&'static str, Arc<D>>,
    limit: usize,
    unkept: u64,
    key: Key,
}

/// All that a description says, as numbers, in memory that is used again.
#[derive(Debug, Default)]
struct Key {
    words: Vec<usize>,
    /// Element types that there were: a type's number is its place.
    dtypes: Vec<DType>,
}

impl<D> Descriptions<D> {
    /// How many are kept by default.
    pub const DEFAULT_LIMIT: usize = 10_000;

    /// None yet.
    pub fn new() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }

    /// None yet, and never more than `limit`, but for those that only have a name.
    pub fn with_limit(limit: usize) -> Self {
        Self { made: FxHashMap::default(), names: FxHashMap::default(), limit, unkept: 0, key: Key::default() }
    }

    /// What was made of the description of such an operation, or what `make` makes of it now.
    pub fn get(&mut self, operation: &OperationIr, make: impl FnOnce(Description) -> D) -> Arc<D> {
        let (known, arguments) = Known::of(operation);
        let key = self.key.of(known, &arguments);
        if let Some(made) = self.made.get(key) {
            return Arc::clone(made);
        }
        if self.made.len() >= self.limit {
            self.unkept += 1;
            let named = self.names.entry(known.name).or_insert_with(|| Arc::new(make(Description::named(known.name))));
            return Arc::clone(named);
        }
        let made = Arc::new(make(Description::new(known, &arguments)));
        self.made.insert(key.into(), Arc::clone(&made));
        made
    }

    /// How many operations only had their name, because there were too many others.
    pub fn unkept(&self) -> u64 {
        self.unkept
    }
}

impl Key {
    /// Of two operations it is the same only if they are: what comes next is always said by what was before.
    fn of(&mut self, known: &'static Known, arguments: &Arguments<'_>) -> &[usize] {
        self.words.clear();
        let times = usize::try_from(arguments.times).unwrap_or(usize::MAX);
        self.words.extend([ptr::from_ref(known).addr(), times, arguments.id.len()]);
        self.words.extend(arguments.id.bytes().map(usize::from));
        for (named, others) in arguments.places() {
            self.words.push(others.len());
            named.iter().for_each(|&tensor| self.push(tensor));
            others.iter().for_each(|tensor| self.push(Some(tensor)));
        }
        &self.words
    }

    fn push(&mut self, tensor: Option<&TensorIr>) {
        let Some(tensor) = tensor else { return self.words.push(usize::MAX) };
        let dtype = match self.dtypes.iter().position(|dtype| *dtype == tensor.dtype) {
            Some(place) => place,
            None => {
                self.dtypes.push(tensor.dtype);
                self.dtypes.len() - 1
            }
        };
        self.words.extend([dtype, tensor.shape.len()]);
        self.words.extend_from_slice(&tensor.shape);
    }
}

impl<D> Default for Descriptions<D> {
    fn default() -> Self {
        Self::new()
    }
}

impl<D> fmt::Debug for Descriptions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptions")
            .field("kept", &self.made.len())
            .field("limit", &self.limit)
            .field("unkept", &self.unkept)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Descriptions;
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
    fn all_that_a_description_says_tells_operations_apart() {
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
        let mut descriptions = Descriptions::new();
        let mut made = 0;
        for operation in different.iter().chain(&different) {
            descriptions.get(operation, |_| made += 1);
        }
        assert_eq!(made, different.len());
    }

    #[test]
    fn there_are_no_more_than_the_limit_and_then_only_names() {
        let mut descriptions = Descriptions::with_limit(2);
        let mut said = |dims: &[usize]| descriptions.get(&init(dims), |description| description.fields.len());
        let full = said(&[1]);
        assert!(*full > 0);
        said(&[2]);
        assert_eq!([said(&[3]), said(&[4]), said(&[1])].map(|fields| *fields), [0, 0, *full]);
        assert_eq!(descriptions.unkept(), 2);
    }
}
