//! Modules of a model, and the tree of their calls.

use crate::trace::{Span, SpanId};
use rustc_hash::FxHashMap;

/// The modules and the call tree of the spans so far.
#[derive(Debug, Default)]
pub(super) struct Modules {
    /// The number of each module, by its path.
    ids: FxHashMap<String, usize>,
    /// The number of each node of the call tree, by its parent and its module.
    ///
    /// The plugin has a row for each node. If each call were a node, a module that is called twice would have two rows
    /// that both show the sum.
    nodes: FxHashMap<(Option<usize>, usize), usize>,
    /// The nodes of the spans that are calls of modules.
    node_of: FxHashMap<SpanId, usize>,
}

/// A call of a module.
#[derive(Debug)]
pub(in super::super) struct Module<'a> {
    pub(in super::super) path: &'a str,
    /// The number of the module.
    pub(in super::super) id: usize,
    /// The number of the node in the call tree.
    pub(in super::super) node: usize,
    /// The node around it.
    pub(in super::super) parent: Option<usize>,
}

impl Modules {
    /// Returns the module of a span whose fields name this path.
    pub(super) fn of<'a>(&mut self, span: Span<'_>, path: &'a str) -> Module<'a> {
        let parent = span.stack().skip(1).find_map(|outer| self.node_of.get(&outer.id()).copied());
        let next = self.ids.len();
        let id = match self.ids.get(path) {
            Some(known) => *known,
            None => *self.ids.entry(path.to_owned()).or_insert(next),
        };
        // PyTorch counts nodes from 1.
        let next = self.nodes.len() + 1;
        let node = *self.nodes.entry((parent, id)).or_insert(next);
        self.node_of.insert(span.id(), node);
        Module { path, id, node, parent }
    }
}
