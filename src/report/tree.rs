use crate::trace::{Callsite, Span, Trace};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// Every path of spans that was taken, with what was measured along it, over all windows.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    index: HashMap<Key, usize>,
    names: Vec<Arc<Name>>,
    name_index: HashMap<Arc<Name>, usize>,
}

/// What makes spans the same, wherever they are nested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) name: String,
    pub(super) target: String,
    pub(super) location: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    parent: Option<usize>,
    name: usize,
    shapes: Option<String>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    /// Its place among the tree's names.
    pub(super) name: usize,
    /// Shapes of the arguments, if the span says.
    pub(super) shapes: Option<String>,
    pub(super) measured: Measured,
}

/// What is added up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) calls: u64,
    pub(super) total: Duration,
    pub(super) own: Duration,
    pub(super) longest: Duration,
    pub(super) flops: u64,
    pub(super) bytes: u64,
}

impl Measured {
    fn of(span: Span<'_>) -> Self {
        let op = span.fields().op();
        Self {
            calls: 1,
            total: span.duration(),
            own: span.self_time(),
            longest: span.duration(),
            flops: op.flops().unwrap_or(0),
            bytes: op.bytes().unwrap_or(0),
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.total += other.total;
        self.own += other.own;
        self.longest = self.longest.max(other.longest);
        self.flops = self.flops.saturating_add(other.flops);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Tree {
    /// Paths that are told apart. Past that, spans are still counted under their names, but not where they were nested.
    const NODES: usize = 100_000;

    pub(super) fn add(&mut self, trace: &Trace) {
        let names: Vec<_> = trace.callsites().iter().map(|callsite| self.name_of(callsite)).collect();
        // A parent comes before its children.
        let mut nodes: Vec<usize> = Vec::with_capacity(trace.spans().len());
        for span in trace.spans() {
            let parent = span.parent().map(|parent| nodes[parent.id().index()]);
            let node = self.node(parent, names[span.callsite_id().index()], shapes(span));
            self.nodes[node].measured.add(&Measured::of(span));
            nodes.push(node);
        }
    }

    fn name_of(&mut self, callsite: &Callsite) -> usize {
        let name = Arc::new(Name {
            name: callsite.name().to_owned(),
            target: callsite.target().to_owned(),
            location: callsite.location(),
        });
        *self.name_index.entry(Arc::clone(&name)).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    fn node(&mut self, parent: Option<usize>, name: usize, shapes: Option<String>) -> usize {
        let mut key = Key { parent, name, shapes };
        if let Some(&node) = self.index.get(&key) {
            return node;
        }
        if self.nodes.len() >= Self::NODES {
            key = Key { parent: None, name, shapes: None };
        }
        *self.index.entry(key).or_insert_with_key(|key| {
            self.nodes.push(Node {
                parent: key.parent,
                name,
                shapes: key.shapes.clone(),
                measured: Measured::default(),
            });
            self.nodes.len() - 1
        })
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) fn name(&self, node: usize) -> &Name {
        &self.names[self.nodes[node].name]
    }

    pub(super) fn name_at(&self, place: usize) -> &Name {
        &self.names[place]
    }

    /// What a node is nested in, from the inside out.
    pub(super) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].parent, |&node| self.nodes[node].parent)
    }
}

/// `[64, 512], [512, 512]`.
fn shapes(span: Span<'_>) -> Option<String> {
    if span.fields().is_empty() {
        return None;
    }
    let shapes: Vec<_> = span.fields().op().shapes().map(|(_, shape)| shape).collect();
    (!shapes.is_empty()).then(|| shapes.join(", "))
}
