//! What spans and operations say of shapes, as text.

use super::texts::{TextId, Texts};
use crate::trace::Fields;

/// What makes operations the same: their shapes, each text kept once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct OpKey {
    shapes: TextId,
    gemm: Option<TextId>,
}

/// The shapes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Op<'a> {
    /// As `[64, 512], [512, 512]`.
    pub(super) shapes: &'a str,
    /// As `64x512x512`.
    pub(super) gemm: Option<&'a str>,
}

impl OpKey {
    /// None if there are too many texts already.
    pub(super) fn new(shapes: &str, gemm: Option<&str>, texts: &mut Texts) -> Option<Self> {
        texts.id(shapes).map(|shapes| Self { shapes, gemm: gemm.and_then(|gemm| texts.id(gemm)) })
    }

    pub(super) fn op(self, texts: &Texts) -> Op<'_> {
        Op { shapes: texts.get(self.shapes), gemm: self.gemm.map(|gemm| texts.get(gemm)) }
    }
}

/// `[64, 512], [512, 512]`.
pub(super) fn shapes(fields: Fields<'_>) -> Option<String> {
    if fields.is_empty() {
        return None;
    }
    let shapes: Vec<_> = fields.op().shapes().map(|(_, shape)| shape).collect();
    (!shapes.is_empty()).then(|| shapes.join(", "))
}
