//! The call tree of all windows, from which the table of spans is made.

use super::{
    durations::{CallTime, CallTimes},
    labels::{self, argument_shapes},
    totals::{GpuTotals, SpanTotals},
};
use crate::{
    analysis::{SpanCalls, SpanFlops},
    trace::{Callsite, FieldRange, HeapUse, Span, SpanId, Trace},
};
use rustc_hash::FxHashMap;
use std::{sync::Arc, time::Duration};

/// The call tree of all windows: one node for each distinct path of nested spans, with its totals.
#[derive(Debug, Default)]
pub(super) struct CallTree {
    nodes: Vec<CallNode>,
    node_index: FxHashMap<NodeKey, usize>,
    names: Vec<Arc<SpanName>>,
    name_index: FxHashMap<Arc<SpanName>, usize>,
    unattributed: GpuTotals,
}

/// The identity of a span, wherever it is nested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpanName {
    pub(super) name: String,
    pub(super) target: String,
    /// `file:line`, if known.
    pub(super) location: Option<String>,
}

/// The identity of a node: spans with the same key are added to the same node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NodeKey {
    parent: Option<usize>,
    caller: Option<usize>,
    name: usize,
    module: Option<String>,
    shapes: Option<String>,
}

/// The spans of one name on one path.
#[derive(Debug)]
pub(super) struct CallNode {
    /// The index of the node around it on its thread.
    pub(super) parent: Option<usize>,
    /// The index of the node that it works for: see [`Span::caller`](crate::trace::Span::caller).
    caller: Option<usize>,
    /// The index of its name: see [`CallTree::name`].
    pub(super) name: usize,
    /// The path of the module, if the span states it.
    pub(super) module: Option<String>,
    /// The shapes of the arguments, if the span states them.
    pub(super) shapes: Option<String>,
    pub(super) totals: SpanTotals,
    pub(super) times: CallTimes,
}

/// The paths of names in a [`CallTree`], each once: nodes whose callers have the same names are on one path.
#[derive(Debug, Default)]
pub(super) struct NamePaths {
    /// The path of each node.
    pub(super) of_node: Vec<usize>,
    /// The path around each path. It comes before those inside it.
    pub(super) parents: Vec<Option<usize>>,
}

impl CallNode {
    fn add_call(&mut self, call: &CallTime) {
        self.totals.add_call(call.busy, call.latency());
        self.times.add(call);
    }
}

impl CallTree {
    /// The number of paths that have nodes of their own. Later ones are counted by name, without their parents.
    ///
    /// A node takes some 800 bytes, which no window is charged with, and a page keeps a second tree. So both together
    /// take 32 MB, an eighth of the memory limit by default, and only if recursion branches at each depth.
    const NODES: usize = 20_000;
    /// The number of places whose nodes are remembered while a window is added: some 50 bytes each.
    const KNOWN: usize = 1 << 12;

    /// Adds the spans of a window.
    pub(super) fn add(&mut self, trace: &Trace, flops: &SpanFlops) {
        let names: Vec<_> = trace.callsites().iter().map(|callsite| self.intern_name(callsite)).collect();
        let calls = SpanCalls::of(trace);
        // Calls with several enters, by the first.
        let mut reentered: FxHashMap<SpanId, CallTime> = FxHashMap::default();
        let mut nodes: Vec<usize> = vec![0; trace.spans().len()];
        // The nodes of spans with the same fields, stored once, in the same place, whose texts need not be made again.
        let mut known: FxHashMap<_, usize> = FxHashMap::default();
        for id in trace.caller_order().unwrap_or_default() {
            let span = trace.span(id);
            let [parent, caller] = [span.parent(), span.caller()].map(|outer| Some(nodes[outer?.id().index()]));
            let callsite = span.callsite_id();
            let FieldRange { start, len } = trace.spans[id.index()].fields;
            let place = ([parent, caller].map(|node| node.map_or(0, |node| node + 1)), callsite, start, len);
            let node = known.get(&place).copied().unwrap_or_else(|| {
                let (name, module) = (names[callsite.index()], span.fields().op().module().map(str::to_owned));
                let node = self.node(NodeKey { parent, caller, name, module, shapes: argument_shapes(span.fields()) });
                if known.len() < Self::KNOWN {
                    known.insert(place, node);
                }
                node
            });
            let first = calls.first(span.id());
            let is_cut = calls.is_cut(first);
            self.nodes[node].totals.add_enter(span, flops, is_cut);
            if is_cut {
                self.nodes[node].totals.cut_calls += u64::from(first == span.id());
            } else if calls.is_reentered(first) {
                let busy = if calls.is_nested(span) { Duration::ZERO } else { span.duration() };
                reentered.entry(first).or_default().add(span, busy);
            } else {
                self.nodes[node].add_call(&CallTime::of(span));
            }
            nodes[id.index()] = node;
        }
        reentered.iter().for_each(|(first, call)| self.nodes[nodes[first.index()]].add_call(call));
        self.add_gpu(trace, &nodes, &calls);
        self.add_heap(trace, &nodes);
    }

    /// Adds the heap that spans used. `nodes` is the node of each span.
    fn add_heap(&mut self, trace: &Trace, nodes: &[usize]) {
        if !trace.is_heap_counted() {
            return;
        }
        let mut of_spans: Vec<HeapUse> = trace.spans().map(Span::heap).collect();
        for (&own, &node) in of_spans.iter().zip(nodes) {
            self.nodes[node].totals.self_heap += own;
        }
        // From the inside out: once a span is reached, everything nested in it has been added to it.
        for span in (0..nodes.len()).rev() {
            let total = of_spans[span];
            self.nodes[nodes[span]].totals.total_heap += total;
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                of_spans[parent.id().index()] += total;
            }
        }
    }

    /// Adds the GPU work and allocations of a window. `nodes` is the node of each span.
    fn add_gpu(&mut self, trace: &Trace, nodes: &[usize], calls: &SpanCalls) {
        if trace.work().len() == 0 && trace.allocations().len() == 0 {
            return;
        }
        let mut of_spans = vec![GpuTotals::default(); nodes.len()];
        for work in trace.work() {
            let span = work.span().map(|span| &mut of_spans[span.id().index()]);
            span.unwrap_or(&mut self.unattributed).add_work(trace, work);
        }
        for allocation in trace.allocations() {
            let span = allocation.span().map(|span| &mut of_spans[span.id().index()]);
            span.unwrap_or(&mut self.unattributed).add_allocation(allocation);
        }
        // Most spans cause none themselves.
        let nothing = GpuTotals::default();
        for (span, &node) in of_spans.iter().zip(nodes).filter(|(span, _)| **span != nothing) {
            self.nodes[node].totals.self_gpu.add(span);
        }
        // From the inside out: once a span is reached, everything nested in it has been added to it.
        for span in (0..nodes.len()).rev() {
            let total = of_spans[span];
            if total == nothing {
                continue;
            }
            let totals = &mut self.nodes[nodes[span]].totals;
            totals.total_gpu.add(&total);
            totals.whole_gpu += if calls.is_cut(SpanId::new(span)) { Duration::ZERO } else { total.time };
            if let Some(parent) = trace.span(SpanId::new(span)).parent() {
                of_spans[parent.id().index()].add(&total);
            }
        }
    }

    /// Returns the index of a callsite's name, which is [`labels::OTHERS`] if there are too many names already.
    fn intern_name(&mut self, callsite: &Callsite) -> usize {
        let mut name = Arc::new(SpanName {
            name: callsite.name().to_owned(),
            target: callsite.target().to_owned(),
            location: callsite.location(),
        });
        if self.names.len() >= labels::NAMES && !self.name_index.contains_key(&name) {
            name = Arc::new(SpanName { name: labels::OTHERS.to_owned(), target: String::new(), location: None });
        }
        *self.name_index.entry(Arc::clone(&name)).or_insert_with(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// Returns the index of the node with this key, which is added if it is new.
    fn node(&mut self, mut key: NodeKey) -> usize {
        if let Some(&node) = self.node_index.get(&key) {
            return node;
        }
        if self.nodes.len() >= Self::NODES {
            key = NodeKey { parent: None, caller: None, name: key.name, module: None, shapes: None };
        }
        *self.node_index.entry(key).or_insert_with_key(|key| {
            let NodeKey { parent, caller, name, module, shapes } = key.clone();
            let (totals, times) = Default::default();
            self.nodes.push(CallNode { parent, caller, name, module, shapes, totals, times });
            self.nodes.len() - 1
        })
    }

    /// Returns all nodes. A node comes after its parent and its caller.
    pub(super) fn nodes(&self) -> &[CallNode] {
        &self.nodes
    }

    /// Returns the GPU work that belongs to no known span.
    pub(super) fn unattributed(&self) -> &GpuTotals {
        &self.unattributed
    }

    /// Returns the name with this index: see [`CallNode::name`].
    pub(super) fn name(&self, index: usize) -> &SpanName {
        &self.names[index]
    }

    /// Returns the path of each node.
    pub(super) fn name_paths(&self) -> NamePaths {
        let mut paths = NamePaths::default();
        let mut index: FxHashMap<(Option<usize>, usize), usize> = FxHashMap::default();
        for node in &self.nodes {
            let outer = node.caller.map(|caller| paths.of_node[caller]);
            let path = *index.entry((outer, node.name)).or_insert_with(|| {
                paths.parents.push(outer);
                paths.parents.len() - 1
            });
            paths.of_node.push(path);
        }
        paths
    }

    /// Returns for each node whether it is outermost in its row: in no other node of the row, on its thread. `row_of`
    /// is the row of each node.
    pub(super) fn outermost(&self, row_of: &[usize]) -> Vec<bool> {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(parent) = node.parent {
                children[parent].push(index as u32);
            }
        }
        let mut outermost = vec![false; self.nodes.len()];
        // How many nodes of each row are open around the one that is looked at.
        let mut open = vec![0_u32; row_of.iter().max().map_or(0, |row| row + 1)];
        let mut visits: Vec<(u32, bool)> = Vec::new();
        for root in (0..self.nodes.len()).filter(|&node| self.nodes[node].parent.is_none()) {
            visits.push((root as u32, true));
            while let Some((index, is_enter)) = visits.pop() {
                let (index, row) = (index as usize, row_of[index as usize]);
                if !is_enter {
                    open[row] -= 1;
                    continue;
                }
                outermost[index] = open[row] == 0;
                open[row] += 1;
                visits.push((index as u32, false));
                visits.extend(children[index].drain(..).map(|child| (child, true)));
            }
        }
        outermost
    }

    /// Returns the nodes that a node works for, from the inside out.
    pub(super) fn callers(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.nodes[node].caller, |&node| self.nodes[node].caller)
    }
}
