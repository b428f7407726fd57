//! Modules of a model, and where in each other they are called.

use crate::trace::{Span, SpanId};
use rustc_hash::FxHashMap;

/// The modules that spans have been so far.
#[derive(Debug, Default)]
pub(super) struct Modules {
    ids: FxHashMap<String, usize>,
    /// Places by the place around them and the module.
    ///
    /// The plugin has a row for each place. If calls had numbers instead, a module that is called twice would have two
    /// rows that both show the sum.
    places: FxHashMap<(Option<usize>, usize), usize>,
    /// The places of the spans that are modules.
    of_spans: FxHashMap<SpanId, usize>,
}

/// A module, at one of the places where it is called.
#[derive(Debug)]
pub(in super::super) struct Module<'a> {
    pub(in super::super) path: &'a str,
    /// The number of the module.
    pub(in super::super) id: usize,
    /// The number of the place.
    pub(in super::super) place: usize,
    /// The place that it lies in.
    pub(in super::super) parent: Option<usize>,
}

impl Modules {
    /// The module of a span that names this path.
    pub(super) fn of<'a>(&mut self, span: Span<'_>, path: &'a str) -> Module<'a> {
        let parent = span.stack().skip(1).find_map(|outer| self.of_spans.get(&outer.id()).copied());
        let next = self.ids.len();
        let id = match self.ids.get(path) {
            Some(known) => *known,
            None => *self.ids.entry(path.to_owned()).or_insert(next),
        };
        // PyTorch counts them from 1.
        let next = self.places.len() + 1;
        let place = *self.places.entry((parent, id)).or_insert(next);
        self.of_spans.insert(span.id(), place);
        Module { path, id, place, parent }
    }
}
