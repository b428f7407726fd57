use super::{Known, arguments::Arguments};
use burn::backend::ir::OperationIr;
use kernspan::trace::{Value, convention};
use std::borrow::Cow;

/// What one of Burn's operations is, in the words of [`kernspan::trace::convention`].
///
/// | field | what it says |
/// |---|---|
/// | `op.shape.ARG`, `op.dtype.ARG` | the tensors that go in, by name: `lhs` and `rhs` of two alike, else `input`, `weight`, `bias`, `grad`, `indices` and so on; where there may be any number, as for `cat`, `input`, `input1` to `input7` |
/// | `op.shape.output`, `op.dtype.output` | what comes out; then `indices`, or for custom operations `output1` to `output7` |
/// | `op.flops` | as [`flops`](crate::flops()) counts them; not there if unknown |
/// | `op.bytes` | what is read and written, each tensor once; of those that are only picked from or put into, the part that is; none where only the shape is another |
/// | `op.gemm` | of products, m, n and k: of one in the batch, or of all as one, if the right side is the same for all |
///
/// ```
/// use burn::{
///     backend::ir::{NumericOperationIr, OperationIr, ReduceDimOpIr, TensorId, TensorIr},
///     tensor::{DType, Shape},
/// };
/// use kernspan::trace::Value;
/// use kernspan_burn::Description;
///
/// let tensor = |id, dims: [usize; 2]| TensorIr::uninit(TensorId::new(id), Shape::new(dims), DType::F32);
/// let sum = ReduceDimOpIr { input: tensor(0, [8, 16]), out: tensor(1, [8, 1]), axis: 1, accumulator_len: 1 };
/// let described = Description::of(&OperationIr::NumericFloat(DType::F32, NumericOperationIr::SumDim(sum)));
/// assert_eq!(described.name, "sum_dim");
/// assert_eq!(described.field("op.shape.input"), Some(&Value::from("[8, 16]")));
/// assert_eq!(described.field("op.flops"), Some(&Value::U64(8 * 16)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// As Burn's functions are called, or the id of a custom operation.
    pub name: Cow<'static, str>,
    /// Names and values.
    pub fields: Vec<(&'static str, Value)>,
}

impl Description {
    /// Of an operation. It allocates: for the same operations again and again there is [`Descriptions`](crate::Descriptions).
    pub fn of(operation: &OperationIr) -> Self {
        let (known, arguments) = Known::of(operation);
        Self::new(known, &arguments)
    }

    pub(super) fn new(known: &'static Known, arguments: &Arguments<'_>) -> Self {
        let cost = known.cost(arguments);
        let mut fields = Vec::new();
        for (name, tensor) in arguments.fields() {
            fields.push((name.shape, Value::from(format!("{:?}", &tensor.shape[..]).as_str())));
            fields.push((name.dtype, Value::from(tensor.dtype.name())));
        }
        fields.extend(cost.flops.map(|flops| (convention::FLOPS, Value::U64(flops))));
        fields.push((convention::BYTES, Value::U64(cost.bytes)));
        fields.extend(cost.gemm.map(|gemm| (convention::GEMM, Value::from(gemm.to_string().as_str()))));
        let name = if arguments.id.is_empty() { known.name.into() } else { arguments.id.to_owned().into() };
        Self { name, fields }
    }

    pub(super) fn named(name: &'static str) -> Self {
        Self { name: name.into(), fields: Vec::new() }
    }

    /// The value of the field `name`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find_map(|(field, value)| (*field == name).then_some(value))
    }
}
