use super::{
    averages::Averages,
    measured::{GpuMeasured, Measured},
    op,
};
use crate::analysis::SpanFlops;
use crate::trace::{Callsite, SpanId, Trace};
use std::{collections::HashMap, sync::Arc};

/// Every path of spans that was taken, with what was measured along it, over all windows.
#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    index: HashMap<Key, usize>,
    names: Vec<Arc<Name>>,
    name_index: HashMap<Arc<Name>, usize>,
    unattributed: GpuMeasured,
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
    module: Option<String>,
    shapes: Option<String>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) parent: Option<usize>,
    /// Its place among the tree's names.
    pub(super) name: usize,
    /// The path of the module, if the span says.
    pub(super) module: Option<String>,
    /// Shapes of the arguments, if the span says.
    pub(super) shapes: Option<String>,
    pub(super) measured: Measured,
}

impl Tree {
    /// Paths that are told apart. Past that, spans are still counted under their names, but not where they were nested.
    const NODES: usize = 100_000;
    /// Names that are told apart. Spans with others are one row, [`Averages::OTHERS`](super::Averages::OTHERS).
    const NAMES: usize = 10_000;

    pub(super) fn add(&mut self, trace: &Trace, flops: &SpanFlops) {
        let names: Vec<_> = trace.callsites().iter().map(|callsite| self.name_of(callsite)).collect();
        // A parent comes before its children.
        let mut nodes: Vec<usize> = Vec::with_capacity(trace.spans().len());
        for span in trace.spans() {
            let parent = span.parent().map(|parent| nodes[parent.id().index()]);
            let module = span.fields().op().module().map(str::to_owned);
            let name = names[span.callsite_id().index()];
            let node = self.node(Key { parent, name, module, shapes: op::shapes(span.fields()) });
            self.nodes[node].measured.add(&Measured::of(span, flops));
            nodes.push(node);
        }
        self.add_gpu(trace, &nodes);
    }

    /// Adds what GPUs did, given the node of each span.
    fn add_gpu(&mut self, trace: &Trace, nodes: &[usize]) {
        if trace.work().len() == 0 && trace.allocations().len() == 0 {
            return;
        }
        let mut of_spans = vec![GpuMeasured::default(); nodes.len()];
        for work in trace.work() {
            let span = work.span().map(|span| &mut of_spans[span.id().index()]);
            span.unwrap_or(&mut self.unattributed).add_work(trace, work);
        }
        for allocation in trace.allocations() {
            let span = allocation.span().map(|span| &mut of_spans[span.id().index()]);
            span.unwrap_or(&mut self.unattributed).add_allocation(allocation);
        }
        for (span, &node) in of_spans.iter().zip(nodes) {
            self.nodes[node].measured.own_gpu.add(span);
        }
        // From the inside out: when a span's turn comes, all that is nested in it has been added to it.
        for span in (0..nodes.len()).rev() {
            let total = of_spans[span];
            self.nodes[nodes[span]].measured.total_gpu.add(&total);
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                of_spans[parent.id().index()].add(&total);
            }
        }
    }

    fn name_of(&mut self, callsite: &Callsite) -> usize {
        let mut name = Arc::new(Name {
            name: callsite.name().to_owned(),
            target: callsite.target().to_owned(),
            location: callsite.location(),
        });
        if self.names.len() >= Self::NAMES && !self.name_index.contains_key(&name) {
            name = Arc::new(Name { name: Averages::OTHERS.to_owned(), target: String::new(), location: None });
        }
        *self.name_index.entry(Arc::clone(&name)).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    fn node(&mut self, mut key: Key) -> usize {
        if let Some(&node) = self.index.get(&key) {
            return node;
        }
        if self.nodes.len() >= Self::NODES {
            key = Key { parent: None, name: key.name, module: None, shapes: None };
        }
        *self.index.entry(key).or_insert_with_key(|key| {
            let Key { parent, name, module, shapes } = key.clone();
            self.nodes.push(Node { parent, name, module, shapes, measured: Measured::default() });
            self.nodes.len() - 1
        })
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What GPUs did for no span that is known.
    pub(super) fn unattributed(&self) -> &GpuMeasured {
        &self.unattributed
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
