use super::{arguments::Arguments, kind::OperationKind};
use burn::backend::ir::OperationIr;
use kernspan::trace::{Value, convention};
use std::borrow::Cow;

/// The name of one of Burn's operations, and its properties as fields of [`kernspan::trace::convention`].
///
/// | field | value |
/// |---|---|
/// | `op.shape.ARG`, `op.dtype.ARG` | shape and element type of each input |
/// | `op.shape.output`, `op.dtype.output` | the same of each output |
/// | `op.flops` | FLOPs as counted by [`flops`](crate::flops()); missing if unknown |
/// | `op.bytes` | bytes read and written, each tensor once; 0 if only the shape changes |
/// | `op.gemm` | m, n and k of a matrix product |
///
/// `ARG` is `lhs` and `rhs` for two equal inputs, and else `input`, `weight`, `bias`, `grad`, `indices` and so on.
/// Operations with any number of inputs, such as `cat`, have `input`, `input1` to `input7`. Further outputs are
/// `indices`, and `output1` to `output7` for custom operations.
///
/// Operations that read or write a part of a tensor count the bytes of that part. The sizes of a batch of products are
/// those of one product, or of a single larger product if the right-hand side is the same for all.
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
    /// The name of Burn's function, or the id of a custom operation.
    pub name: Cow<'static, str>,
    /// Names and values of the fields.
    pub fields: Vec<(&'static str, Value)>,
}

impl Description {
    /// Describes an operation. This allocates; a [`DescriptionCache`](crate::DescriptionCache) keeps descriptions of
    /// repeated operations.
    pub fn of(operation: &OperationIr) -> Self {
        let (kind, arguments) = OperationKind::of(operation);
        Self::new(kind, &arguments)
    }

    pub(super) fn new(kind: &'static OperationKind, arguments: &Arguments<'_>) -> Self {
        let cost = kind.cost(arguments);
        let mut fields = Vec::new();
        for (names, tensor) in arguments.fields() {
            fields.push((names.shape, Value::from(format!("{:?}", &tensor.shape[..]).as_str())));
            fields.push((names.dtype, Value::from(tensor.dtype.name())));
        }
        fields.extend(cost.flops.map(|flops| (convention::FLOPS, Value::U64(flops))));
        fields.push((convention::BYTES, Value::U64(cost.bytes)));
        fields.extend(cost.gemm.map(|gemm| (convention::GEMM, Value::from(gemm.to_string().as_str()))));
        let name = if arguments.id.is_empty() { kind.name.into() } else { arguments.id.to_owned().into() };
        Self { name, fields }
    }

    pub(super) fn named(name: &'static str) -> Self {
        Self { name: name.into(), fields: Vec::new() }
    }

    /// Returns the value of the field `name`.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find_map(|(field, value)| (*field == name).then_some(value))
    }
}
