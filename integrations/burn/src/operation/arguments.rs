use burn::backend::ir::TensorIr;

/// The tensors of an operation, and the other properties that its cost depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    pub(super) inputs: Tensors<'a, 6>,
    pub(super) outputs: Tensors<'a, 5>,
    /// The amount of work per element that does not follow from the shapes, such as the size of a pooling window.
    pub(super) work_per_element: u64,
    /// The id of a custom operation, or an empty text.
    pub(super) id: &'a str,
}

/// Tensors with names, some of which may be missing, or any number of tensors without names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors<'a, const N: usize> {
    names: &'static [FieldNames],
    named: [Option<&'a TensorIr>; N],
    unnamed: &'a [TensorIr],
}

/// The names of the fields that describe one tensor.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldNames {
    pub(super) shape: &'static str,
    pub(super) dtype: &'static str,
}

/// Makes the field names of tensors: `op.shape.lhs` and `op.dtype.lhs` for `lhs`.
macro_rules! field_names {
    ($($name:ident)*) => {
        &[$($crate::operation::arguments::FieldNames {
            shape: concat!("op.shape.", stringify!($name)),
            dtype: concat!("op.dtype.", stringify!($name)),
        }),*]
    };
}
pub(super) use field_names;

/// Field names of tensors without names. Further tensors are not described.
const INPUTS: &[FieldNames] = field_names!(input input1 input2 input3 input4 input5 input6 input7);
const OUTPUTS: &[FieldNames] = field_names!(output output1 output2 output3 output4 output5 output6 output7);

impl<'a> Arguments<'a> {
    /// The arguments of an operation without tensors.
    pub(super) const NONE: Self = Self { inputs: Tensors::NONE, outputs: Tensors::NONE, work_per_element: 1, id: "" };

    /// Returns the input at an index, if it is present.
    pub(super) fn input(&self, index: usize) -> Option<&'a TensorIr> {
        self.inputs.get(index)
    }

    /// Returns the first output.
    pub(crate) fn output(&self) -> Option<&'a TensorIr> {
        self.outputs.get(0)
    }

    pub(crate) fn inputs(&self) -> impl Iterator<Item = &'a TensorIr> {
        self.inputs.iter().flatten()
    }

    pub(crate) fn outputs(&self) -> impl Iterator<Item = &'a TensorIr> {
        self.outputs.iter().flatten()
    }

    /// Returns the inputs and then the outputs, with the names of their fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static FieldNames, &'a TensorIr)> {
        self.inputs.fields(INPUTS).chain(self.outputs.fields(OUTPUTS))
    }

    /// Returns the inputs and then the outputs, each as tensors with names and tensors without.
    pub(super) fn named_and_unnamed(&self) -> [(&[Option<&'a TensorIr>], &'a [TensorIr]); 2] {
        [(self.inputs.named(), self.inputs.unnamed), (self.outputs.named(), self.outputs.unnamed)]
    }
}

impl<'a, const N: usize> Tensors<'a, N> {
    const NONE: Self = Self { names: &[], named: [None; N], unnamed: &[] };

    pub(super) fn new<const M: usize>(names: &'static [FieldNames; M], tensors: [Option<&'a TensorIr>; M]) -> Self {
        const { assert!(M <= N, "more arguments than there is room for") };
        let mut named = [None; N];
        named[..M].copy_from_slice(&tensors);
        Self { names, named, unnamed: &[] }
    }

    pub(super) fn without_names(unnamed: &'a [TensorIr]) -> Self {
        Self { unnamed, ..Self::NONE }
    }

    fn get(&self, index: usize) -> Option<&'a TensorIr> {
        if self.names.is_empty() { self.unnamed.get(index) } else { *self.named.get(index)? }
    }

    fn named(&self) -> &[Option<&'a TensorIr>] {
        self.named.get(..self.names.len()).unwrap_or_default()
    }

    fn iter(&self) -> impl Iterator<Item = Option<&'a TensorIr>> {
        let (named, count, unnamed) = (self.named, self.names.len(), self.unnamed);
        named.into_iter().take(count).chain(unnamed.iter().map(Some))
    }

    fn fields(&self, unnamed: &'static [FieldNames]) -> impl Iterator<Item = (&'static FieldNames, &'a TensorIr)> {
        let names = if self.names.is_empty() { unnamed } else { self.names };
        names.iter().zip(self.iter()).filter_map(|(names, tensor)| Some((names, tensor?)))
    }
}
