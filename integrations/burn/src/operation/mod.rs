//! Descriptions of Burn's operations: names, shapes, FLOPs and bytes.

mod arguments;
mod cost;
mod description;
mod description_cache;
mod flops;
mod kind;
mod operands;
#[cfg(test)]
mod samples;

pub(crate) use self::{
    cost::bytes,
    kind::{OperationKind, Storage},
};
pub use self::{description::Description, description_cache::DescriptionCache, flops::flops};

#[cfg(test)]
mod tests {
    use super::{Description, DescriptionCache, OperationKind, samples};
    use kernspan::trace::convention;
    use std::collections::HashSet;

    #[test]
    fn every_operation_is_named_like_a_function() {
        let is_name = |name: &str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        let names: Vec<_> = samples::every().iter().map(|operation| OperationKind::of(operation).0.name).collect();
        assert!(names.iter().all(|name| !name.is_empty() && is_name(name)));
        // These names are shared by an operation on floats and one on integers or booleans.
        let twice = ["matmul", "random", "into_float", "into_int"];
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len() - twice.len());
    }

    #[test]
    fn the_tensors_are_the_same_as_those_of_burns_methods() {
        for operation in samples::every() {
            let (kind, arguments) = OperationKind::of(&operation);
            let ids = |tensors: Vec<u64>| -> HashSet<u64> { tensors.into_iter().collect() };
            let inputs = ids(arguments.inputs().map(|tensor| tensor.id.value()).collect());
            let outputs = ids(arguments.outputs().map(|tensor| tensor.id.value()).collect());
            assert_eq!(inputs, ids(operation.inputs().map(|tensor| tensor.id.value()).collect()), "{}", kind.name);
            assert_eq!(outputs, ids(operation.outputs().map(|tensor| tensor.id.value()).collect()), "{}", kind.name);
        }
    }

    #[test]
    fn fields_are_those_of_the_convention_each_once() {
        for operation in samples::every() {
            let Description { name, fields } = Description::of(&operation);
            let is_conventional = |field: &str| {
                field.starts_with(convention::SHAPE)
                    || field.starts_with(convention::DTYPE)
                    || [convention::FLOPS, convention::BYTES, convention::GEMM].contains(&field)
            };
            assert!(fields.iter().all(|(field, _)| is_conventional(field)), "{name}");
            assert_eq!(fields.iter().map(|(field, _)| field).collect::<HashSet<_>>().len(), fields.len(), "{name}");
        }
    }

    #[test]
    fn no_two_operations_are_taken_for_one() {
        let operations = samples::every();
        let mut cache = DescriptionCache::new();
        let mut made = 0;
        for _ in 0..2 {
            for operation in &operations {
                cache.get(operation, |_| made += 1);
            }
        }
        assert_eq!((made, cache.uncached()), (operations.len(), 0));
    }
}
