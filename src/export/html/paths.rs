//! The time of spans and kernels by path, for flame graphs and the roofline.

use super::names::Names;
use crate::{
    analysis::{SpanCost, span_costs},
    export::{json::Object, work_key::WorkKey},
    trace::Trace,
};
use rustc_hash::FxHashMap;
use std::{collections::HashMap, time::Duration};

/// The time of spans by path and of kernels in them, over all windows.
#[derive(Debug, Default)]
pub(super) struct Paths {
    nodes: Vec<Node>,
    indices: FxHashMap<(Option<usize>, usize), usize>,
    /// The costs of spans, by their path from the outside in.
    costs: HashMap<Vec<String>, Cost>,
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
    flops: u64,
    gpu: Duration,
    bytes: u64,
    /// The time that the GPU takes at the least, as far as the roofline is known, in seconds.
    ideal: f64,
}

/// A path in the roofline model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RooflinePoint<'a> {
    pub(super) path: &'a [String],
    pub(super) intensity: f64,
    pub(super) flops_per_second: f64,
    pub(super) gpu: Duration,
    /// The least time that the GPU takes, in percent of the time that it took.
    pub(super) percent: f64,
}

impl Paths {
    /// The most paths that are kept apart. The time of others counts for the path around them.
    const NODES: usize = 50_000;
    /// The most frames of a flame graph.
    const FRAMES: usize = 8_000;

    /// Adds a window.
    pub(super) fn add(&mut self, trace: &Trace, names: &mut Names) {
        let callsites: Vec<_> = trace.callsites().iter().map(|callsite| names.index(callsite.name())).collect();
        let mut of_span: Vec<Option<usize>> = vec![None; trace.spans().len()];
        for span in trace.caller_order().unwrap_or_default().into_iter().map(|id| trace.span(id)) {
            let caller = span.caller().and_then(|caller| of_span[caller.id().index()]);
            let node = self.node(caller, callsites[span.callsite_id().index()]);
            if let Some(node) = node {
                self.nodes[node].host = self.nodes[node].host.saturating_add(nanos(span.self_time()));
            }
            of_span[span.id().index()] = node;
        }
        let unattributed = names.index(crate::report::Average::UNATTRIBUTED);
        let mut known: FxHashMap<WorkKey, usize> = FxHashMap::default();
        for work in trace.work() {
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.index(&work.name().to_string()));
            let span = work.span().map(|span| of_span[span.id().index()]);
            let outer = span.unwrap_or_else(|| self.node(None, unattributed));
            if let Some(node) = self.node(outer, name) {
                self.nodes[node].gpu = self.nodes[node].gpu.saturating_add(nanos(work.duration()));
            }
        }
        for cost in span_costs(trace) {
            self.add_cost(cost);
        }
    }

    fn add_cost(&mut self, cost: SpanCost) {
        let SpanCost { path, gpu, exposed, flops, bytes, roofline, .. } = cost;
        if self.costs.len() >= Self::NODES && !self.costs.contains_key(&path) {
            return;
        }
        let sum = self.costs.entry(path).or_default();
        sum.exposed = sum.exposed.saturating_add(exposed);
        if let Some(roofline) = roofline {
            sum.flops = sum.flops.saturating_add(flops);
            sum.bytes = sum.bytes.saturating_add(bytes);
            sum.gpu = sum.gpu.saturating_add(gpu);
            sum.ideal += roofline.percent / 100.0 * gpu.as_secs_f64();
        }
    }

    /// Returns the node of this name in another one, or that one if there are too many.
    fn node(&mut self, parent: Option<usize>, name: usize) -> Option<usize> {
        if let Some(&node) = self.indices.get(&(parent, name)) {
            return Some(node);
        }
        if self.nodes.len() >= Self::NODES {
            return parent;
        }
        self.nodes.push(Node { parent, name, host: 0, gpu: 0 });
        self.indices.insert((parent, name), self.nodes.len() - 1);
        Some(self.nodes.len() - 1)
    }

    /// Returns the costs of the spans with this path, from the outside in.
    pub(super) fn cost(&self, path: &[String]) -> Option<&Cost> {
        self.costs.get(path)
    }

    pub(super) fn has_gpu(&self) -> bool {
        self.nodes.iter().any(|node| node.gpu > 0)
    }

    pub(super) fn has_host(&self) -> bool {
        self.nodes.iter().any(|node| node.host > 0)
    }

    /// Returns the paths whose operations and bytes are known, those that took the longest first.
    pub(super) fn roofline(&self) -> Vec<RooflinePoint<'_>> {
        let mut points: Vec<_> = self.costs.iter().filter_map(|(path, cost)| RooflinePoint::of(path, cost)).collect();
        points.sort_by(|a, b| b.gpu.cmp(&a.gpu).then_with(|| a.path.cmp(b.path)));
        points
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
        let mut totals: Vec<u64> = self.nodes.iter().map(time).collect();
        let mut own = totals.clone();
        // A parent is before its children.
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                totals[parent] = totals[parent].saturating_add(totals[index]);
            }
        }
        let mut sorted = totals.clone();
        sorted.sort_unstable_by_key(|&total| std::cmp::Reverse(total));
        let least = sorted.get(Self::FRAMES).map_or(1, |&total| total.saturating_add(1)).max(1);
        let mut frames = vec![None; self.nodes.len()];
        let mut kept = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            if totals[index] >= least {
                frames[index] = Some(kept.len());
                kept.push(index);
            } else if let Some(parent) = node.parent {
                own[parent] = own[parent].saturating_add(totals[index]);
            }
        }
        let parent = |index: usize| self.nodes[index].parent.and_then(|parent| frames[parent]);
        let number = |parent: Option<usize>| parent.map_or(-1, |frame| frame as i64);
        section.string("unit", "time");
        section.array("parents", |array| kept.iter().for_each(|&index| array.number(number(parent(index)))));
        section.array("names", |array| kept.iter().for_each(|&index| array.number(self.nodes[index].name)));
        section.array("values", |array| kept.iter().for_each(|&index| array.number(own[index])));
    }
}

impl<'a> RooflinePoint<'a> {
    /// Returns the point of a path, if its operations and bytes are known.
    fn of(path: &'a [String], cost: &Cost) -> Option<Self> {
        let seconds = cost.gpu.as_secs_f64();
        let known = cost.bytes > 0 && cost.flops > 0 && seconds > 0.0;
        known.then(|| Self {
            path,
            intensity: cost.flops as f64 / cost.bytes as f64,
            flops_per_second: cost.flops as f64 / seconds,
            gpu: cost.gpu,
            percent: 100.0 * cost.ideal / seconds,
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
