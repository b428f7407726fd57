//! An interner of texts with a limit.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Stores each distinct text once, up to a limit, and gives it an id.
#[derive(Debug)]
pub(super) struct Interner {
    limit: usize,
    texts: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, TextId>,
}

/// The id of a text in the [`Interner`] that stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextId(u32);

impl Interner {
    /// Returns an empty interner that stores at most `limit` texts.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, texts: Vec::new(), ids: FxHashMap::default() }
    }

    /// Returns the id of a text, or `None` if the text is new and the interner is full.
    pub(super) fn intern(&mut self, text: &str) -> Option<TextId> {
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
    pub(super) fn get(&self, id: TextId) -> &str {
        &self.texts[id.0 as usize]
    }
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
