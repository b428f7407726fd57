//! The time of spans and kernels by path, for flame graphs, and the costs of spans by path.

use super::packed::Names;
use crate::{
    analysis::{Analysis, CostNode, Flops, cost_nodes},
    export::{json::Object, work_text::WorkKey},
};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The time of spans by path and of kernels in them, over all windows.
#[derive(Debug, Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    indices: FxHashMap<(Option<usize>, usize), usize>,
    /// The costs of spans, by their node.
    costs: FxHashMap<usize, Cost>,
}

/// A span or a kernel in the spans around it.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    /// The index of the name in the page.
    name: usize,
    /// Nanoseconds on the host, without nested spans.
    host: u64,
    /// Nanoseconds of GPU work; only kernels and copies have any.
    gpu: u64,
}

/// The costs of the spans with one path.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    pub(super) exposed: Duration,
    pub(super) flops: Flops,
    pub(super) gpu: Duration,
    /// Those of windows with a roofline by fields.
    pub(super) stated: StatedCost,
}

/// The costs of spans whose fields state operations and bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StatedCost {
    pub(super) flops: u64,
    pub(super) gpu: Duration,
    pub(super) bytes: u64,
    /// The least time that the GPU needs, in seconds.
    pub(super) ideal: f64,
}

impl Paths {
    /// The maximum number of distinct paths. The time of others counts for the path around them.
    const NODES: usize = 50_000;
    /// The maximum number of frames in a flame graph.
    const FRAMES: usize = 8_000;
    /// The maximum depth of a flame graph. A stack of Python functions has up to a hundred frames.
    const DEPTH: usize = 200;

    /// Adds a window.
    pub(super) fn add(&mut self, window: &Analysis<'_>, names: &mut Names) {
        let trace = window.trace();
        let callsites: Vec<_> = trace.callsites().iter().map(|callsite| names.index(callsite.name())).collect();
        let mut of_span: Vec<Option<u32>> = vec![None; trace.spans().len()];
        for span in trace.caller_order().unwrap_or_default().into_iter().map(|id| trace.span(id)) {
            let caller = span.caller().and_then(|caller| of_span[caller.id().index()]).map(|node| node as usize);
            let node = self.node(caller, callsites[span.callsite_id().index()]);
            if let Some(node) = node {
                self.nodes[node].host = self.nodes[node].host.saturating_add(nanos(span.self_time()));
            }
            of_span[span.id().index()] = node.map(|node| node as u32);
        }
        let unattributed = names.index(crate::report::Average::UNATTRIBUTED);
        let mut known: FxHashMap<WorkKey, usize> = FxHashMap::default();
        for work in trace.work() {
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.work(&work.name().to_string()));
            let span = work.span().map(|span| of_span[span.id().index()].map(|node| node as usize));
            let outer = span.unwrap_or_else(|| self.node(None, unattributed));
            if let Some(node) = self.node(outer, name) {
                self.nodes[node].gpu = self.nodes[node].gpu.saturating_add(nanos(work.duration()));
            }
        }
        let mut of_cost: Vec<Option<usize>> = Vec::new();
        for cost in cost_nodes(window, Self::NODES) {
            let name = names.index(cost.name);
            let node = match cost.parent {
                None => self.own_node(None, name),
                Some(parent) => of_cost[parent].and_then(|parent| self.own_node(Some(parent), name)),
            };
            of_cost.push(node);
            if let Some(node) = node {
                self.costs.entry(node).or_default().add(&cost);
            }
        }
    }

    /// Returns the node of this name in another one, or that one if there are too many.
    fn node(&mut self, parent: Option<usize>, name: usize) -> Option<usize> {
        self.own_node(parent, name).or(parent)
    }

    /// Returns the node of this name in another one, or `None` if there are too many.
    fn own_node(&mut self, parent: Option<usize>, name: usize) -> Option<usize> {
        if let Some(node) = self.find(parent, name) {
            return Some(node);
        }
        if self.nodes.len() >= Self::NODES {
            return None;
        }
        self.nodes.push(Node { parent, name, host: 0, gpu: 0 });
        self.indices.insert((parent, name), self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    /// Returns the node of this name in another one, if there is one.
    pub(super) fn find(&self, parent: Option<usize>, name: usize) -> Option<usize> {
        self.indices.get(&(parent, name)).copied()
    }

    /// Returns the costs of the spans of a node.
    pub(super) fn cost(&self, node: usize) -> Option<&Cost> {
        self.costs.get(&node)
    }

    /// Returns the nodes with costs, with the index of the name and the costs of each.
    pub(super) fn costs(&self) -> impl Iterator<Item = (usize, usize, &Cost)> {
        self.costs.iter().map(|(&node, cost)| (node, self.nodes[node].name, cost))
    }

    /// Returns the indices of the names of a path, from the inside out.
    pub(super) fn names(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&node| self.nodes[node].parent).map(|node| self.nodes[node].name)
    }

    pub(super) fn has_gpu(&self) -> bool {
        self.nodes.iter().any(|node| node.gpu > 0)
    }

    pub(super) fn has_host(&self) -> bool {
        self.nodes.iter().any(|node| node.host > 0)
    }

    /// Writes the frames of the flame graph of the host.
    pub(super) fn write_host(&self, section: &mut Object<'_>) {
        self.write_frames(section, |node| node.host);
    }

    /// Writes the frames of the flame graph of GPU time, with kernels inside the spans that launched them.
    pub(super) fn write_gpu(&self, section: &mut Object<'_>) {
        self.write_frames(section, |node| node.gpu);
    }

    /// Writes the frames with the longest times. A frame that is left out counts for the one around it.
    fn write_frames(&self, section: &mut Object<'_>, time: fn(&Node) -> u64) {
        let mut own: Vec<u64> = self.nodes.iter().map(time).collect();
        let mut totals = own.clone();
        let mut depths: Vec<usize> = Vec::with_capacity(self.nodes.len());
        // A parent is before its children.
        self.nodes.iter().for_each(|node| depths.push(node.parent.map_or(1, |parent| depths[parent] + 1)));
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                totals[parent] = totals[parent].saturating_add(totals[index]);
            }
        }
        let mut sorted: Vec<_> =
            totals.iter().zip(&depths).filter(|(_, depth)| **depth <= Self::DEPTH).map(|(total, _)| *total).collect();
        sorted.sort_unstable_by_key(|&total| std::cmp::Reverse(total));
        let least = sorted.get(Self::FRAMES).map_or(1, |&total| total.saturating_add(1)).max(1);
        let is_kept = |index: usize| totals[index] >= least && depths[index] <= Self::DEPTH;
        let mut frames = vec![None; self.nodes.len()];
        let mut kept = Vec::new();
        let mut left_out = 0_usize;
        for (index, node) in self.nodes.iter().enumerate() {
            if is_kept(index) {
                frames[index] = Some(kept.len());
                kept.push(index);
                continue;
            }
            left_out += usize::from(totals[index] > 0);
            if let Some(parent) = node.parent.filter(|&parent| is_kept(parent)) {
                own[parent] = own[parent].saturating_add(totals[index]);
            }
        }
        if left_out > 0 {
            let depth = Self::DEPTH;
            let note = format!(
                "{left_out} frames are left out, as they took little or are nested more than {depth} deep; their time \
                 counts for the frames around them."
            );
            section.string("note", &note);
        }
        let parent = |index: usize| self.nodes[index].parent.and_then(|parent| frames[parent]);
        let number = |parent: Option<usize>| parent.map_or(-1, |frame| frame as i64);
        section.string("unit", "time");
        section.array("parents", |array| kept.iter().for_each(|&index| array.number(number(parent(index)))));
        section.array("names", |array| kept.iter().for_each(|&index| array.number(self.nodes[index].name)));
        section.array("values", |array| kept.iter().for_each(|&index| array.number(own[index])));
    }
}

impl Cost {
    /// Adds the costs of a window.
    fn add(&mut self, cost: &CostNode<'_>) {
        self.exposed = self.exposed.saturating_add(cost.exposed);
        self.flops.add(&cost.flops);
        self.gpu = self.gpu.saturating_add(cost.gpu);
        if let Some(roofline) = cost.roofline {
            self.stated.add(cost, roofline.percent);
        }
    }
}

impl StatedCost {
    /// Adds the costs of a window, in which the GPU took this percentage of the least time.
    fn add(&mut self, cost: &CostNode<'_>, percent: f64) {
        self.flops = self.flops.saturating_add(cost.flops.count);
        self.bytes = self.bytes.saturating_add(cost.bytes);
        self.gpu = self.gpu.saturating_add(cost.gpu);
        self.ideal += percent / 100.0 * cost.gpu.as_secs_f64();
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
