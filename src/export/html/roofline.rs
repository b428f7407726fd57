//! The roofline: operations for each byte and for each second, by path of spans.

use super::{
    packed::{Names, shortened_path},
    paths::{Cost, Paths},
};
use crate::{
    export::json::Object,
    report::{CounterAverage, Report},
    trace::Device,
};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, time::Duration};

/// The paths of spans whose operations and bytes are known, below what the GPU can do.
#[derive(Debug)]
pub(super) struct Roofline<'a> {
    device: &'a Device,
    bytes_per_second: u64,
    /// Those that took the longest first.
    points: Vec<RooflinePoint>,
}

/// A path in the roofline model.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RooflinePoint {
    /// The innermost span of the path: see [`Paths::names`].
    node: usize,
    intensity: f64,
    flops_per_second: f64,
    gpu: Duration,
    /// The least time that the GPU needs, in percent of the time it took, if the peak for the operations is known.
    percent: Option<f64>,
    /// Whether hardware counters have measured the bytes; otherwise fields state them.
    is_measured: bool,
}

impl<'a> Roofline<'a> {
    /// The most points that are drawn: more cannot be told apart.
    const POINTS: usize = 500;

    /// Returns the roofline of the first GPU, if there is anything to draw.
    pub(super) fn of(report: &'a Report, paths: &Paths, names: &mut Names) -> Option<Self> {
        let device = report.devices().first()?;
        let bytes_per_second = device.memory_bytes_per_second()?;
        let counters = report.counters().limit(usize::MAX).rows();
        let by_name: Vec<_> = counters.into_iter().map(|row| (names.index(&row.name), row)).collect();
        // A name that is too long, or one too many, is not the only one in its place.
        let measured = by_name.into_iter().filter(|(name, row)| names.has(*name, &row.name)).collect();
        let points = points(paths, &measured, bytes_per_second as f64);
        (!points.is_empty()).then_some(Self { device, bytes_per_second, points })
    }

    /// Writes the roofs, and for each point the path, operations for each byte and for each second, the time, the
    /// percentage of what is possible, and whether the bytes were measured.
    pub(super) fn write(&self, paths: &Paths, names: &mut Names, section: &mut Object<'_>) {
        section.number("bandwidth", self.bytes_per_second);
        section.array("roofs", |roofs| {
            for dtype in ["f32", "tf32", "bf16"] {
                if let Some(peak) = self.device.peak_flops(dtype) {
                    roofs.array(|roof| {
                        roof.string(dtype);
                        roof.float(peak);
                    });
                }
            }
        });
        section.array_of_lines("points", |array| {
            for point in self.points.iter().take(Self::POINTS) {
                array.array(|cells| {
                    let path = shortened_path(paths.names(point.node).map(|name| names.get(name)));
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
}

/// Returns the points, those that took the longest first. `measured` has the hardware counters of spans, by the index
/// of their name.
fn points(paths: &Paths, measured: &FxHashMap<usize, CounterAverage>, bytes_per_second: f64) -> Vec<RooflinePoint> {
    let mut paths_of: FxHashMap<usize, usize> = FxHashMap::default();
    for (_, name, _) in paths.costs().filter(|(.., cost)| !cost.gpu.is_zero()) {
        *paths_of.entry(name).or_default() += 1;
    }
    let point = |(node, name, cost): (usize, usize, &Cost)| {
        // Counters are by name: they say nothing of each path if spans of a name are in several.
        let counters = measured.get(&name).filter(|_| paths_of.get(&name) == Some(&1));
        let by_counters = counters.and_then(|it| RooflinePoint::measured(node, cost, it, bytes_per_second));
        by_counters.or_else(|| RooflinePoint::stated(node, cost))
    };
    let mut points: Vec<_> = paths.costs().filter_map(point).collect();
    points.sort_by_key(|point| (Reverse(point.gpu), point.node));
    points
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

#[cfg(test)]
mod tests {
    use super::{Paths, RooflinePoint, points};
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
        points(&paths, &measured, MEMORY).into_iter().find(|point| point.node == node).unwrap()
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
