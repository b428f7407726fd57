//! Shapes of arguments as text.

use super::interner::{Interner, TextId};
use crate::trace::Fields;

/// The shapes of the arguments of an operation, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shapes<'a> {
    /// All arguments, such as `[64, 512], [512, 512]`.
    pub(super) arguments: &'a str,
    /// The size of the matrix product, such as `64x512x512`, if the operation is one.
    pub(super) gemm: Option<&'a str>,
}

/// The id of [`Shapes`], whose texts are stored in an [`Interner`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapesId {
    arguments: TextId,
    gemm: Option<TextId>,
}

impl ShapesId {
    /// Interns the texts. Returns `None` if the interner is full.
    pub(super) fn intern(arguments: &str, gemm: Option<&str>, interner: &mut Interner) -> Option<Self> {
        let arguments = interner.intern(arguments)?;
        Some(Self { arguments, gemm: gemm.and_then(|gemm| interner.intern(gemm)) })
    }

    /// Looks the texts up in the interner that they were stored in.
    pub(super) fn resolve(self, interner: &Interner) -> Shapes<'_> {
        Shapes { arguments: interner.get(self.arguments), gemm: self.gemm.map(|gemm| interner.get(gemm)) }
    }
}

/// Returns the shapes that the fields state, such as `[64, 512], [512, 512]`, or `None` if they state none.
pub(super) fn argument_shapes(fields: Fields<'_>) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let shapes: Vec<_> = fields.op().shapes().map(|(_, shape)| shape).collect();
    (!shapes.is_empty()).then(|| shapes.join(", "))
}
