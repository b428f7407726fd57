//! The labels of rows: names and shapes, of which only so many are kept, and stacks, which are cut.

use crate::trace::Fields;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The number of distinct names, and of distinct pairs of a name and a shape, that have rows of their own.
pub(super) const NAMES: usize = 10_000;

/// The name of the row that sums up everything past a limit.
pub(super) const OTHERS: &str = "[others]";

/// The number of names of a stack that a row has. A hundred are more than people read; recursion may be thousands deep,
/// and a row for each depth would take memory by the square of that.
pub(super) const STACK: usize = 100;

/// The names and shapes of the rows of a table, each distinct text once.
#[derive(Debug)]
pub(super) struct Labels {
    names: Interner,
    shapes: Interner,
}

/// The name and the shapes of a row, whose texts are stored in [`Labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Label {
    /// `None` if there were too many names.
    pub(super) name: Option<TextId>,
    /// `None` if they are not known or not used, or if there were too many.
    pub(super) shapes: Option<ShapesId>,
}

/// The shapes of the arguments of an operation, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shapes<'a> {
    /// All arguments, such as `[64, 512], [512, 512]`.
    pub(super) arguments: &'a str,
    /// The size of the matrix product, such as `64x512x512`, if the operation is one.
    pub(super) gemm: Option<&'a str>,
}

/// The id of [`Shapes`], whose texts are stored in [`Labels`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShapesId {
    arguments: TextId,
    gemm: Option<TextId>,
}

/// Stores each distinct text once, up to a limit, and gives it an id.
#[derive(Debug)]
struct Interner {
    limit: usize,
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, TextId>,
}

/// The id of a text in the [`Interner`] that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextId(u32);

impl Default for Labels {
    fn default() -> Self {
        Self { names: Interner::new(NAMES), shapes: Interner::new(NAMES) }
    }
}

impl Labels {
    /// Returns the id of a name, or `None` if there are too many.
    pub(super) fn name(&mut self, name: &str) -> Option<TextId> {
        self.names.intern(name)
    }

    /// Returns the id of shapes, or `None` if there are too many.
    pub(super) fn shapes(&mut self, arguments: &str, gemm: Option<&str>) -> Option<ShapesId> {
        let arguments = self.shapes.intern(arguments)?;
        Some(ShapesId { arguments, gemm: gemm.and_then(|gemm| self.shapes.intern(gemm)) })
    }

    /// Returns the texts of a label.
    pub(super) fn resolve(&self, label: Label) -> (Option<&str>, Option<Shapes<'_>>) {
        let shapes = label.shapes.map(|ShapesId { arguments, gemm }| Shapes {
            arguments: self.shapes.get(arguments),
            gemm: gemm.map(|gemm| self.shapes.get(gemm)),
        });
        (label.name.map(|name| self.names.get(name)), shapes)
    }
}

impl Interner {
    /// Returns an empty interner that stores at most `limit` texts.
    fn new(limit: usize) -> Self {
        Self { limit, texts: Vec::new(), ids: FxHashMap::default() }
    }

    /// Returns the id of a text, or `None` if the text is new and the interner is full.
    fn intern(&mut self, text: &str) -> Option<TextId> {
        if let Some(&id) = self.ids.get(text) {
            return Some(id);
        }
        let id = u32::try_from(self.texts.len()).ok().filter(|_| self.texts.len() < self.limit).map(TextId)?;
        let text: Arc<str> = Arc::from(text);
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        Some(id)
    }

    /// Returns the text with this id.
    fn get(&self, id: TextId) -> &str {
        &self.texts[id.0 as usize]
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

/// Returns the first names of a stack, from the inside out, and a last one that says how many are left out.
pub(super) fn shortened<'a>(stack: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut stack = stack.fuse();
    let mut names: Vec<_> = stack.by_ref().take(STACK).map(str::to_owned).collect();
    match stack.count() {
        0 => {}
        more => names.push(format!("[{more} more]")),
    }
    names
}

#[cfg(test)]
mod tests {
    use super::Interner;

    #[test]
    fn a_text_is_stored_once_and_no_more_than_the_limit() {
        let mut interner = Interner::new(2);
        let ids = ["a", "b", "a", "c", "b"].map(|text| interner.intern(text));
        assert_eq!((ids[0], ids[1], ids[3]), (ids[2], ids[4], None));
        assert_eq!([ids[0], ids[1]].map(|id| interner.get(id.unwrap())), ["a", "b"]);
    }
}
