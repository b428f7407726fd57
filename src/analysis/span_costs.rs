//! The time, operations and bytes of spans, and how near they are to the GPU's limits.

use super::{critical_path::critical_path, flops::Flops, span_flops::SpanFlops};
use crate::trace::{Device, Span, SpanId, Trace};
use std::{collections::BTreeMap, time::Duration};

/// The time, operations and bytes of all spans with the same path.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SpanCost {
    /// The names of the spans, from the outside in.
    pub path: Vec<String>,
    /// The number of spans.
    pub spans: u64,
    /// The time on the host, from start to end.
    pub host: Duration,
    /// The time of GPU work that was launched in the spans and in those nested in them.
    pub gpu: Duration,
    /// The time of these spans, and of those nested in them, on the [critical path](super::critical_path), on the host
    /// and on the GPU. The rest of their time is hidden by something else.
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

/// Returns the cost of spans by their path, in the order in which paths begin.
///
/// ```
/// # fn show(trace: &kernspan::Trace) {
/// for cost in kernspan::analysis::span_costs(trace) {
///     println!("{}: {:?} on the GPU, {:?} exposed", cost.path.join(" > "), cost.gpu, cost.exposed);
/// }
/// # }
/// ```
#[must_use]
pub fn span_costs(trace: &Trace) -> Vec<SpanCost> {
    let flops = SpanFlops::of(trace);
    let mut paths = Paths::default();
    let of_span: Vec<usize> = trace.spans().map(|span| paths.index(span)).collect();
    for span in trace.spans() {
        let sum = &mut paths.sums[of_span[span.id().index()]];
        sum.spans += 1;
        sum.host = sum.host.saturating_add(span.duration());
        sum.flops.add(&flops.of_span(span.id()));
        sum.bytes = sum.bytes.saturating_add(span.fields().op().bytes().unwrap_or(0));
    }
    let mut add = |span: Option<SpanId>, time: Duration, to: fn(&mut Sum) -> &mut Duration| {
        for span in span.map(|id| trace.span(id)).into_iter().flat_map(Span::stack) {
            let sum = to(&mut paths.sums[of_span[span.id().index()]]);
            *sum = sum.saturating_add(time);
        }
    };
    for work in trace.work() {
        add(work.span().map(Span::id), work.duration(), |sum| &mut sum.gpu);
    }
    for part in critical_path(trace) {
        add(part.span, part.duration(), |sum| &mut sum.exposed);
    }
    let bandwidth = trace.devices().first().and_then(Device::memory_bytes_per_second);
    paths.sums.into_iter().map(|sum| sum.cost(bandwidth)).collect()
}

/// The sums of spans with the same path.
#[derive(Debug, Default)]
struct Sum {
    path: Vec<String>,
    spans: u64,
    host: Duration,
    gpu: Duration,
    exposed: Duration,
    flops: Flops,
    bytes: u64,
}

impl Sum {
    fn cost(self, bandwidth: Option<u64>) -> SpanCost {
        let roofline = self.roofline(bandwidth);
        let Self { path, spans, host, gpu, exposed, flops, bytes } = self;
        SpanCost { path, spans, host, gpu, exposed, flops: flops.count, bytes, roofline }
    }

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

/// Paths of spans, each once.
#[derive(Debug, Default)]
struct Paths<'a> {
    sums: Vec<Sum>,
    /// The path by that of the parent and the name.
    known: BTreeMap<(Option<usize>, &'a str), usize>,
    /// The path of each span so far; a parent comes before its children.
    of_span: Vec<usize>,
}

impl<'a> Paths<'a> {
    fn index(&mut self, span: Span<'a>) -> usize {
        let parent = span.parent().map(|parent| self.of_span[parent.id().index()]);
        let index = *self.known.entry((parent, span.name())).or_insert_with(|| {
            let mut path = parent.map_or_else(Vec::new, |parent| self.sums[parent].path.clone());
            path.push(span.name().to_owned());
            self.sums.push(Sum { path, ..Sum::default() });
            self.sums.len() - 1
        });
        self.of_span.push(index);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::span_costs;
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
        let costs = span_costs(&gpu_trace());
        let paths: Vec<_> = costs.iter().map(|cost| cost.path.join(" > ")).collect();
        assert_eq!(paths, ["train_step", "train_step > forward", "train_step > backward"]);
        assert!(costs.iter().all(|cost| cost.spans == 2 && cost.exposed <= costs[0].exposed));
        assert!(costs[0].gpu >= costs[1].gpu + costs[2].gpu && costs[1].gpu > Duration::ZERO);
        assert!(costs.iter().all(|cost| cost.roofline.is_none()));
        assert_eq!(span_costs(&Trace::default()), []);
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
            let costs = span_costs(&trace);
            let roofline = costs[1].roofline.unwrap();
            assert_eq!(roofline.is_memory_bound, is_memory_bound);
            assert_eq!(roofline.intensity, 67_000_000.0 / bytes as f64);
            let least = if is_memory_bound { bytes as f64 / 4.917e12 } else { 1e-6 };
            assert!((roofline.percent / 100.0 * costs[1].gpu.as_secs_f64() / least - 1.0).abs() < 0.01, "{roofline:?}");
        }
    }
}
