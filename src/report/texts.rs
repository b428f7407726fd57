use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Texts, each kept once, up to a number of them.
#[derive(Debug)]
pub(super) struct Texts {
    most: usize,
    texts: Vec<Arc<str>>,
    places: FxHashMap<Arc<str>, TextId>,
}

/// The place of a text in its [`Texts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TextId(u32);

impl Texts {
    pub(super) fn new(most: usize) -> Self {
        Self { most, texts: Vec::new(), places: FxHashMap::default() }
    }

    /// The id of a text, unless it is new and there are too many already.
    pub(super) fn id(&mut self, text: &str) -> Option<TextId> {
        if let Some(&id) = self.places.get(text) {
            return Some(id);
        }
        let id = u32::try_from(self.texts.len()).ok().filter(|_| self.texts.len() < self.most).map(TextId)?;
        let text: Arc<str> = Arc::from(text);
        self.texts.push(Arc::clone(&text));
        self.places.insert(text, id);
        Some(id)
    }

    pub(super) fn get(&self, id: TextId) -> &str {
        &self.texts[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Texts;

    #[test]
    fn a_text_is_kept_once_and_no_more_than_so_many() {
        let mut texts = Texts::new(2);
        let ids = ["a", "b", "a", "c", "b"].map(|text| texts.id(text));
        assert_eq!((ids[0], ids[1], ids[3]), (ids[2], ids[4], None));
        assert_eq!([ids[0], ids[1]].map(|id| texts.get(id.unwrap())), ["a", "b"]);
    }
}
