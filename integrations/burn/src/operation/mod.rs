//! What Burn's operations are: names, shapes, what they take.

mod arguments;
mod cost;
mod description;
mod descriptions;
mod flops;
mod known;
mod operands;
#[cfg(test)]
mod samples;

pub(crate) use self::{
    cost::bytes,
    known::{Known, Storage},
};
pub use self::{description::Description, descriptions::Descriptions, flops::flops};

#[cfg(test)]
mod tests {
    use super::{Description, Descriptions, Known, samples};
    use kernspan::trace::convention;
    use std::collections::HashSet;

    #[test]
    fn every_operation_has_a_name_as_functions_have() {
        let is_name = |name: &str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        let names: Vec<_> = samples::every().iter().map(|operation| Known::of(operation).0.name).collect();
        assert!(names.iter().all(|name| !name.is_empty() && is_name(name)));
        // Of floats and of integers are two operations of Burn's, called the same.
        let twice = ["matmul", "random", "into_float", "into_int"];
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len() - twice.len());
    }

    #[test]
    fn the_tensors_are_those_that_burn_says() {
        for operation in samples::every() {
            let (known, arguments) = Known::of(&operation);
            let ids = |tensors: Vec<u64>| -> HashSet<u64> { tensors.into_iter().collect() };
            let inputs = ids(arguments.inputs().map(|tensor| tensor.id.value()).collect());
            let outputs = ids(arguments.outputs().map(|tensor| tensor.id.value()).collect());
            assert_eq!(inputs, ids(operation.inputs().map(|tensor| tensor.id.value()).collect()), "{}", known.name);
            assert_eq!(outputs, ids(operation.outputs().map(|tensor| tensor.id.value()).collect()), "{}", known.name);
        }
    }

    #[test]
    fn fields_are_those_of_the_convention_each_once() {
        for operation in samples::every() {
            let Description { name, fields } = Description::of(&operation);
            let meant = |field: &str| {
                field.starts_with(convention::SHAPE)
                    || field.starts_with(convention::DTYPE)
                    || [convention::FLOPS, convention::BYTES, convention::GEMM].contains(&field)
            };
            assert!(fields.iter().all(|(field, _)| meant(field)), "{name}");
            assert_eq!(fields.iter().map(|(field, _)| field).collect::<HashSet<_>>().len(), fields.len(), "{name}");
        }
    }

    #[test]
    fn no_two_operations_are_taken_for_one() {
        let operations = samples::every();
        let mut descriptions = Descriptions::new();
        let mut made = 0;
        for _ in 0..2 {
            for operation in &operations {
                descriptions.get(operation, |_| made += 1);
            }
        }
        assert_eq!((made, descriptions.unkept()), (operations.len(), 0));
    }
}
