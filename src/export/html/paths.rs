//! The time of spans and kernels by path, for flame graphs and the roofline.

use super::packed::{Names, shortened_path};
use crate::{
    analysis::{Analysis, CostNode, Flops, cost_nodes},
    export::{json::Object, work_text::WorkKey},
    report::CounterAverage,
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
    flops: Flops,
    gpu: Duration,
    /// Those of windows with a roofline by fields.
    stated: StatedCost,
}

/// The costs of spans whose fields state operations and bytes.
#[derive(Clone, Copy, Debug, Default)]
struct StatedCost {
    flops: u64,
    gpu: Duration,
    bytes: u64,
    /// The least time that the GPU needs, in seconds.
    ideal: f64,
}

/// A path in the roofline model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RooflinePoint {
    /// The innermost span of the path: see [`Paths::names`].
    pub(super) node: usize,
    pub(super) intensity: f64,
    pub(super) flops_per_second: f64,
    pub(super) gpu: Duration,
    /// The least time that the GPU needs, in percent of the time it took, if the peak for the operations is known.
    pub(super) percent: Option<f64>,
    /// Whether hardware counters have measured the bytes; otherwise fields state them.
    pub(super) is_measured: bool,
}

impl Paths {
    /// The maximum number of distinct paths. The time of others counts for the path around them.
    const NODES: usize = 50_000;
    /// The maximum number of frames in a flame graph.
    const FRAMES: usize = 8_000;
    /// The maximum number of points in the roofline.
    const POINTS: usize = 500;
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
            let name = *known.entry(WorkKey::of(work)).or_insert_with(|| names.index(&work.name().to_string()));
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

    /// Returns the paths whose operations and bytes are known, those that took the longest first. `measured` has the
    /// hardware counters of spans, by the index of their name.
    pub(super) fn roofline(
        &self,
        measured: &FxHashMap<usize, CounterAverage>,
        bytes_per_second: f64,
    ) -> Vec<RooflinePoint> {
        let mut paths_of: FxHashMap<usize, usize> = FxHashMap::default();
        for (&node, _) in self.costs.iter().filter(|(_, cost)| !cost.gpu.is_zero()) {
            *paths_of.entry(self.nodes[node].name).or_default() += 1;
        }
        let point = |(&node, cost): (&usize, &Cost)| {
            // Counters are by name: they say nothing of each path if spans of a name are in several.
            let name = Some(self.nodes[node].name).filter(|name| paths_of.get(name) == Some(&1));
            let counters = name.and_then(|name| measured.get(&name));
            let by_counters = counters.and_then(|it| RooflinePoint::measured(node, cost, it, bytes_per_second));
            by_counters.or_else(|| RooflinePoint::stated(node, cost))
        };
        let mut points: Vec<_> = self.costs.iter().filter_map(point).collect();
        points.sort_by_key(|point| (std::cmp::Reverse(point.gpu), point.node));
        points
    }

    /// Writes the points of the roofline: the path, operations for each byte and for each second, the time, the
    /// percentage of what is possible, and whether the bytes were measured.
    pub(super) fn write_points(&self, points: &[RooflinePoint], names: &mut Names, section: &mut Object<'_>) {
        section.array_of_lines("points", |array| {
            for point in points.iter().take(Self::POINTS) {
                array.array(|cells| {
                    let path = shortened_path(self.names(point.node).map(|name| names.get(name)));
                    cells.number(names.index(&path));
                    cells.float(point.intensity);
                    cells.float(point.flops_per_second);
                    cells.number(point.gpu.as_nanos());
                    match point.percent {
                        Some(percent) => cells.float(percent),
                        None => cells.null(),
                    }
                    cells.number(u8::from(point.is_measured));
                });
            }
        });
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
            let stated = &mut self.stated;
            stated.flops = stated.flops.saturating_add(cost.flops.count);
            stated.bytes = stated.bytes.saturating_add(cost.bytes);
            stated.gpu = stated.gpu.saturating_add(cost.gpu);
            stated.ideal += roofline.percent / 100.0 * cost.gpu.as_secs_f64();
        }
    }
}

impl RooflinePoint {
    /// Returns the point of a path, if fields state its operations and bytes.
    fn stated(node: usize, cost: &Cost) -> Option<Self> {
        let cost = &cost.stated;
        let seconds = cost.gpu.as_secs_f64();
        let known = cost.bytes > 0 && cost.flops > 0 && seconds > 0.0;
        known.then(|| Self {
            node,
            intensity: cost.flops as f64 / cost.bytes as f64,
            flops_per_second: cost.flops as f64 / seconds,
            gpu: cost.gpu,
            percent: Some(100.0 * cost.ideal / seconds),
            is_measured: false,
        })
    }

    /// Returns the point of a path, if fields state its operations and counters determine its bytes.
    fn measured(node: usize, cost: &Cost, counters: &CounterAverage, bytes_per_second: f64) -> Option<Self> {
        let memory = 100.0 * counters.dram_bytes_per_second? / bytes_per_second;
        Some(Self {
            node,
            intensity: counters.intensity?,
            flops_per_second: counters.flops_per_second?,
            gpu: cost.gpu,
            percent: cost.flops.percent_of_peak(cost.gpu).map(|compute| compute.max(memory)),
            is_measured: true,
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Paths, RooflinePoint};
    use crate::{
        analysis::Analysis,
        export::html::packed::Names,
        report::Report,
        trace::{
            MetricMeaning, Trace, Value, convention,
            sample::{GpuTrace, measure_work, set_fields},
        },
    };

    /// The bytes per second that the memory can do, and those of a product.
    const MEMORY: f64 = 4.9e12;
    const PRODUCT: f64 = 0.9e12;

    /// A training whose products of 2 ms have 10¹² operations each and, as fields state it, 10⁹ bytes. On a GPU that
    /// does bf16, that is half of its peak. The last product is in this span.
    fn training(last: &'static str) -> Trace {
        let mut trace = GpuTrace::default();
        for _ in 0..20 {
            trace.step(|trace| {
                trace.span("attention", |trace| _ = trace.launch("gemm", 2000));
                trace.span("dropout", |trace| _ = trace.launch("copy", 2000));
                trace.span("head", |trace| {
                    trace.span(last, |trace| _ = trace.launch("gemm", 2000));
                });
                trace.synchronize();
            });
        }
        let mut trace = trace.trace();
        let fields = [
            (convention::FLOPS, Value::from(1_000_000_000_000_u64)),
            (convention::BYTES, 1_000_000_000_u64.into()),
            ("op.dtype.input", "bf16".into()),
        ];
        let spans: Vec<_> = trace.spans().map(|span| span.name() == "attention" || span.name() == last).collect();
        spans.iter().enumerate().filter(|(_, has)| **has).for_each(|(span, _)| set_fields(&mut trace, span, &fields));
        measure_work(&mut trace, 1000, [MetricMeaning::DramRead, MetricMeaning::DramWrite], [0.0; 2], |work| {
            if work.name().to_string() == "gemm" { [PRODUCT, 0.0] } else { [2e12, 2e12] }
        });
        trace
    }

    /// Returns the point of the spans of this name, outside of others.
    fn point(trace: &Trace, name: &str) -> RooflinePoint {
        let (mut paths, mut names) = (Paths::default(), Names::default());
        paths.add(&Analysis::of(trace), &mut names);
        let counters = Report::of([trace]).counters().limit(usize::MAX).rows();
        let measured = counters.into_iter().map(|row| (names.index(&row.name), row)).collect();
        let node = paths.find(None, names.index(name)).unwrap();
        paths.roofline(&measured, MEMORY).into_iter().find(|point| point.node == node).unwrap()
    }

    #[test]
    fn measured_bytes_replace_those_of_fields() {
        let found = point(&training("logits"), "attention");
        assert!(found.is_measured && (found.intensity / (5e14 / PRODUCT) - 1.0).abs() < 0.02, "{found:?}");
        assert!((found.flops_per_second / 5e14 - 1.0).abs() < 0.01, "{found:?}");
        assert!((found.percent.unwrap() - 50.5).abs() < 0.5, "{found:?}");
    }

    #[test]
    fn bytes_are_those_of_fields_where_counters_do_not_determine_them() {
        let mut few = training("logits");
        // The third sample has 5 µs of the first product.
        let counters = &mut few.gpu_counters[0];
        (counters.times, counters.values) = (counters.times[2..3].to_vec(), counters.values[4..6].to_vec());
        // Spans of this name are in two places, and counters do not say what each of them took.
        for (trace, case) in [(few, "another sample"), (training("attention"), "two paths")] {
            let found = point(&trace, "attention");
            assert!(!found.is_measured, "{case}: {found:?}");
            assert!((found.intensity / 1000.0 - 1.0).abs() < 1e-9, "{case}: {found:?}");
        }
    }
}
