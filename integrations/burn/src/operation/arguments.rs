use burn::backend::ir::TensorIr;

/// The tensors of an operation, and what else says how much it computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a> {
    pub(super) inputs: Tensors<'a, 6>,
    pub(super) outputs: Tensors<'a, 5>,
    /// How many numbers go into each that comes out, where shapes do not say it, and how many operations on each.
    pub(super) times: u64,
    /// What a custom operation is called.
    pub(super) id: &'a str,
}

/// Tensors with names, of which some may be missing, and then any number without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tensors<'a, const N: usize> {
    names: &'static [Name],
    named: [Option<&'a TensorIr>; N],
    others: &'a [TensorIr],
}

/// The fields of an argument.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) shape: &'static str,
    pub(super) dtype: &'static str,
}

/// The names of the fields of arguments.
macro_rules! names {
    ($($name:ident)*) => {
        &[$($crate::operation::arguments::Name {
            shape: concat!("op.shape.", stringify!($name)),
            dtype: concat!("op.dtype.", stringify!($name)),
        }),*]
    };
}
pub(super) use names;

/// What arguments without names are called, as many as are told of.
const INPUTS: &[Name] = names!(input input1 input2 input3 input4 input5 input6 input7);
const OUTPUTS: &[Name] = names!(output output1 output2 output3 output4 output5 output6 output7);

impl<'a> Arguments<'a> {
    /// Of an operation without tensors.
    pub(super) const NONE: Self = Self { inputs: Tensors::NONE, outputs: Tensors::NONE, times: 1, id: "" };

    /// The input at a place, if there is one.
    pub(super) fn input(&self, place: usize) -> Option<&'a TensorIr> {
        self.inputs.get(place)
    }

    /// The first output.
    pub(crate) fn output(&self) -> Option<&'a TensorIr> {
        self.outputs.get(0)
    }

    pub(crate) fn inputs(&self) -> impl Iterator<Item = &'a TensorIr> {
        self.inputs.places().flatten()
    }

    pub(crate) fn outputs(&self) -> impl Iterator<Item = &'a TensorIr> {
        self.outputs.places().flatten()
    }

    /// Inputs, then outputs, with the names of their fields.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static Name, &'a TensorIr)> {
        self.inputs.fields(INPUTS).chain(self.outputs.fields(OUTPUTS))
    }

    /// Inputs, then outputs: those with places of their own, and the others.
    pub(super) fn places(&self) -> [(&[Option<&'a TensorIr>], &'a [TensorIr]); 2] {
        [(self.inputs.own(), self.inputs.others), (self.outputs.own(), self.outputs.others)]
    }
}

impl<'a, const N: usize> Tensors<'a, N> {
    const NONE: Self = Self { names: &[], named: [None; N], others: &[] };

    pub(super) fn new<const M: usize>(names: &'static [Name; M], tensors: [Option<&'a TensorIr>; M]) -> Self {
        const { assert!(M <= N, "more arguments than there are places") };
        let mut named = [None; N];
        named[..M].copy_from_slice(&tensors);
        Self { names, named, others: &[] }
    }

    pub(super) fn any(others: &'a [TensorIr]) -> Self {
        Self { others, ..Self::NONE }
    }

    fn get(&self, place: usize) -> Option<&'a TensorIr> {
        if self.names.is_empty() { self.others.get(place) } else { *self.named.get(place)? }
    }

    fn own(&self) -> &[Option<&'a TensorIr>] {
        self.named.get(..self.names.len()).unwrap_or_default()
    }

    fn places(&self) -> impl Iterator<Item = Option<&'a TensorIr>> {
        let (named, count, others) = (self.named, self.names.len(), self.others);
        named.into_iter().take(count).chain(others.iter().map(Some))
    }

    fn fields(&self, unnamed: &'static [Name]) -> impl Iterator<Item = (&'static Name, &'a TensorIr)> {
        let names = if self.names.is_empty() { unnamed } else { self.names };
        names.iter().zip(self.places()).filter_map(|(name, tensor)| Some((name, tensor?)))
    }
}
