//! The time, operations and bytes of spans, and how near they are to the GPU's limits.

use super::{Analysis, flops::Flops};
use crate::trace::{Device, Span, SpanId};
use rustc_hash::FxHashMap;
use std::time::Duration;

/// The time, operations and bytes of all spans with the same path.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SpanCost {
    /// The names of the spans, from the outside in. All paths together take memory by the square of the depth.
    pub path: Vec<String>,
    /// The number of spans.
    pub spans: u64,
    /// The time on the host, from start to end.
    pub host: Duration,
    /// The time of GPU work that was launched in the spans and in those nested in them.
    pub gpu: Duration,
    /// The time of these spans, and of those nested in them, on the [critical path](Analysis::critical_path), on the
    /// host and on the GPU. The rest of their time is hidden by something else.
    pub exposed: Duration,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes moved, where fields state them (`op.bytes`).
    pub bytes: u64,
    /// The position of the spans in the roofline model of the GPU, if operations, bytes, and the GPU's peak are known.
    pub roofline: Option<Roofline>,
}

/// A position in the roofline model: the time that operations and bytes take at the least, and the time that was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Roofline {
    /// Operations for each byte: the arithmetic intensity.
    pub intensity: f64,
    /// Whether bytes take longer than operations at the GPU's peaks, so that memory is the limit.
    pub is_memory_bound: bool,
    /// The least time that the GPU takes, in percent of the time that it took.
    pub percent: f64,
}

/// Returns the cost of spans by their path: see [`Analysis::span_costs`].
pub(super) fn span_costs(window: &Analysis<'_>) -> Vec<SpanCost> {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let cost = |node: CostNode<'_>| {
        let mut path = node.parent.map_or_else(Vec::new, |parent| paths[parent].clone());
        path.push(node.name.to_owned());
        paths.push(path.clone());
        let CostNode { spans, host, gpu, exposed, flops, bytes, roofline, .. } = node;
        SpanCost { path, spans, host, gpu, exposed, flops: flops.count, bytes, roofline }
    };
    cost_nodes(window, usize::MAX).into_iter().map(cost).collect()
}

/// Returns the costs as a tree of paths, a path before those inside it, which takes little memory however deep spans
/// are nested. Of more than `most` paths, later ones count for those around them, as far as these include them.
pub(crate) fn cost_nodes<'a>(window: &Analysis<'a>, most: usize) -> Vec<CostNode<'a>> {
    let (trace, flops) = (window.trace(), window.flops());
    let mut paths = Paths { most, ..Paths::default() };
    trace.spans().for_each(|span| paths.add(span));
    let Paths { mut nodes, of_span, .. } = paths;
    for (span, place) in trace.spans().zip(&of_span) {
        let CostPlace::Path(path) = *place else { continue };
        let node = &mut nodes[path as usize];
        node.spans += 1;
        node.host = node.host.saturating_add(span.duration());
        node.flops.add(&flops.of_span(span.id()));
        node.bytes = node.bytes.saturating_add(span.fields().op().bytes().unwrap_or(0));
    }
    let mut add = |span: Option<SpanId>, time: Duration, to: for<'n> fn(&'n mut CostNode<'_>) -> &'n mut Duration| {
        if let Some(CostPlace::Path(path) | CostPlace::Inside(path)) = span.map(|span| of_span[span.index()]) {
            let sum = to(&mut nodes[path as usize]);
            *sum = sum.saturating_add(time);
        }
    };
    for work in trace.work() {
        add(work.span().map(Span::id), work.duration(), |node| &mut node.gpu);
    }
    for part in window.critical_path() {
        add(part.span, part.duration(), |node| &mut node.exposed);
    }
    // From the inside out: once a path is reached, everything inside it has been added to it.
    for index in (0..nodes.len()).rev() {
        let CostNode { parent, gpu, exposed, .. } = nodes[index];
        if let Some(parent) = parent.map(|parent| &mut nodes[parent]) {
            parent.gpu = parent.gpu.saturating_add(gpu);
            parent.exposed = parent.exposed.saturating_add(exposed);
        }
    }
    let bandwidth = trace.devices().first().and_then(Device::memory_bytes_per_second);
    nodes.iter_mut().for_each(|node| node.roofline = node.roofline(bandwidth));
    nodes
}

/// The costs of the spans of one path: see [`SpanCost`].
#[derive(Debug, Default)]
pub(crate) struct CostNode<'a> {
    /// The path around it.
    pub(crate) parent: Option<usize>,
    /// The name of its spans.
    pub(crate) name: &'a str,
    spans: u64,
    host: Duration,
    pub(crate) gpu: Duration,
    pub(crate) exposed: Duration,
    pub(crate) flops: Flops,
    pub(crate) bytes: u64,
    pub(crate) roofline: Option<Roofline>,
}

impl CostNode<'_> {
    fn roofline(&self, bandwidth: Option<u64>) -> Option<Roofline> {
        let known = self.flops.count > 0 && self.bytes > 0 && !self.gpu.is_zero();
        let (compute, bandwidth) = (self.flops.ideal().filter(|_| known)?, bandwidth?);
        let (compute, memory) = (compute.as_secs_f64(), self.bytes as f64 / bandwidth as f64);
        Some(Roofline {
            intensity: self.flops.count as f64 / self.bytes as f64,
            is_memory_bound: memory > compute,
            percent: 100.0 * compute.max(memory) / self.gpu.as_secs_f64(),
        })
    }
}

/// Where the costs of a span count.
#[derive(Clone, Copy, Debug)]
enum CostPlace {
    /// For its own path.
    Path(u32),
    /// For the path around it, since there are too many.
    Inside(u32),
    Nowhere,
}

/// Paths of spans, each once.
#[derive(Debug, Default)]
struct Paths<'a> {
    most: usize,
    nodes: Vec<CostNode<'a>>,
    /// The path by that of the parent and the name.
    known: FxHashMap<(Option<u32>, &'a str), u32>,
    /// The path of each span so far; a parent comes before its children.
    of_span: Vec<CostPlace>,
}

impl<'a> Paths<'a> {
    fn add(&mut self, span: Span<'a>) {
        let parent = match span.parent().map(|parent| self.of_span[parent.id().index()]) {
            None => None,
            Some(CostPlace::Path(parent)) => Some(parent),
            Some(inside) => return self.of_span.push(inside),
        };
        let key = (parent, span.name());
        let place = match self.known.get(&key) {
            Some(&path) => CostPlace::Path(path),
            None if self.nodes.len() >= self.most => parent.map_or(CostPlace::Nowhere, CostPlace::Inside),
            None => {
                let path = self.nodes.len() as u32;
                let parent = parent.map(|parent| parent as usize);
                self.nodes.push(CostNode { parent, name: span.name(), ..CostNode::default() });
                self.known.insert(key, path);
                CostPlace::Path(path)
            }
        };
        self.of_span.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::Analysis;
    use crate::{
        Trace,
        trace::{
            Value, convention,
            sample::{gpu_trace, set_fields},
        },
    };
    use std::{sync::Arc, time::Duration};

    #[test]
    fn spans_of_a_path_are_added_up() {
        let costs = Analysis::of(&gpu_trace()).span_costs();
        let paths: Vec<_> = costs.iter().map(|cost| cost.path.join(" > ")).collect();
        assert_eq!(paths, ["train_step", "train_step > forward", "train_step > backward"]);
        assert!(costs.iter().all(|cost| cost.spans == 2 && cost.exposed <= costs[0].exposed));
        assert!(costs[0].gpu >= costs[1].gpu + costs[2].gpu && costs[1].gpu > Duration::ZERO);
        assert!(costs.iter().all(|cost| cost.roofline.is_none()));
        assert_eq!(Analysis::of(&Trace::default()).span_costs(), []);
    }

    #[test]
    fn the_roofline_is_the_longer_of_both_times() {
        let mut trace = gpu_trace();
        let forward = trace.spans().position(|span| span.name() == "forward").unwrap();
        let fields = |bytes: u64| {
            [
                (convention::FLOPS, Value::U64(67_000_000)),
                (convention::BYTES, Value::U64(bytes)),
                ("op.dtype.input", Value::Str(Arc::from("f32"))),
            ]
        };
        // A microsecond at the peak of an H200, and less and more of its memory's bandwidth.
        for (bytes, is_memory_bound) in [(1_000_000, false), (40_000_000, true)] {
            set_fields(&mut trace, forward, &fields(bytes));
            let costs = Analysis::of(&trace).span_costs();
            let roofline = costs[1].roofline.unwrap();
            assert_eq!(roofline.is_memory_bound, is_memory_bound);
            assert_eq!(roofline.intensity, 67_000_000.0 / bytes as f64);
            let least = if is_memory_bound { bytes as f64 / 4.917e12 } else { 1e-6 };
            assert!((roofline.percent / 100.0 * costs[1].gpu.as_secs_f64() / least - 1.0).abs() < 0.01, "{roofline:?}");
        }
    }
}
