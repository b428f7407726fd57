//! The check of counts, kernels and memory, which are the same in each run of the same program.

use super::{
    Found, Problem,
    thresholds::{Metric, Threshold, Thresholds},
};
use crate::{
    comparison::{Comparison, KernelChange, KernelShapeChange, SpanChange},
    counts::{CountChange, CountKind},
};

pub(super) fn check(comparison: &Comparison, thresholds: &Thresholds) -> Found {
    let mut found = Found::default();
    for change in &comparison.counts {
        count(comparison, change, thresholds, &mut found);
    }
    // Work that moved from one span to another is not more work.
    for span in &comparison.spans {
        let is_total = |count: &CountChange| comparison.counts.iter().any(|total| total.kind == count.kind);
        for change in span.counts.iter().filter(|count| count.is_more() && !is_total(count)) {
            if thresholds.of_span(Metric::Count(change.kind), &span.path) != Threshold::Off {
                found.notes.push(format!("{change} in {}, with as many fewer elsewhere", span.path_text()));
            }
        }
    }
    for kernel in comparison.kernels.iter().filter(|kernel| kernel.is_other_shape()) {
        grid(kernel, thresholds, &mut found);
    }
    for peak in &comparison.memory {
        let (before, after) = (peak.before as f64, peak.after as f64);
        if before > 0.0 && after > thresholds.of(Metric::Memory).limit(before, before) {
            found.problems.push(Problem {
                metric: Metric::Memory,
                path: Vec::new(),
                location: None,
                text: peak.to_string(),
                reasons: Vec::new(),
            });
        }
    }
    found
}

/// Checks a count of the whole step. Where it has grown in spans, each of them is a separate problem.
fn count(comparison: &Comparison, total: &CountChange, thresholds: &Thresholds, found: &mut Found) {
    let metric = Metric::Count(total.kind);
    if !total.is_more() {
        if thresholds.of(metric) != Threshold::Off {
            found.notes.push(total.to_string());
        }
        return;
    }
    let exceeds = |change: &CountChange, threshold: Threshold| {
        let before = change.before.mean();
        change.is_more() && change.after.mean() > threshold.limit(before, before)
    };
    let of_span = |span: &SpanChange| span.counts.iter().find(|it| it.kind == total.kind && it.is_more()).copied();
    let mut grown: Vec<_> = comparison.spans.iter().filter_map(|span| Some((span, of_span(span)?))).collect();
    grown.sort_by(|a, b| b.1.difference().total_cmp(&a.1.difference()));
    // Floating-point operations include those of nested spans: the innermost spans locate them.
    let is_outer = |span: &SpanChange| {
        let is_inner = |other: &SpanChange| other.path.len() > span.path.len() && other.path.starts_with(&span.path);
        total.kind == CountKind::Flops && grown.iter().any(|(other, _)| is_inner(other))
    };
    let inner: Vec<_> = grown.iter().filter(|(span, _)| !is_outer(span)).collect();
    for (span, change) in &inner {
        if exceeds(change, thresholds.of_span(metric, &span.path)) {
            found.problems.push(Problem {
                metric,
                path: span.path.clone(),
                location: span.location.clone(),
                text: format!("{}: {change}", span.path_text()),
                reasons: if total.kind == CountKind::Kernels { kernels(comparison) } else { Vec::new() },
            });
        }
    }
    if inner.is_empty() && exceeds(total, thresholds.of(metric)) {
        let (path, location, reasons) = (Vec::new(), None, Vec::new());
        found.problems.push(Problem { metric, path, location, text: format!("the step: {total}"), reasons });
    }
}

/// Returns a few of the kernels that are launched more often.
fn kernels(comparison: &Comparison) -> Vec<String> {
    const FEW: usize = 3;
    let more = |kernel: &&KernelChange| kernel.difference() > 0.0;
    let text = |kernel: &KernelChange| {
        let [difference] = CountKind::Kernels.amounts([kernel.difference()]);
        format!("{difference} more of kernel {}", kernel.name)
    };
    comparison.kernels.iter().filter(more).take(FEW).map(text).collect()
}

/// Checks a kernel that is launched as often as before, but with different blocks.
fn grid(kernel: &KernelChange, thresholds: &Thresholds, found: &mut Found) {
    let size = |shape: &KernelShapeChange| {
        let product = |sizes: [u32; 3]| sizes.iter().map(|&size| f64::from(size)).product::<f64>();
        product(shape.grid) * product(shape.block)
    };
    let threads =
        |of: fn(&KernelShapeChange) -> f64| kernel.shapes.iter().map(|shape| of(shape) * size(shape)).sum::<f64>();
    let (before, after) = (threads(|shape| shape.before.mean()), threads(|shape| shape.after.mean()));
    let [shown_after, shown_before] = CountKind::Kernels.amounts([after, before]);
    let name = &kernel.name;
    let text = format!("kernel {name}: {shown_after} threads a step instead of {shown_before}, with as many launches");
    if after > thresholds.of(Metric::Grid).limit(before, before) {
        let (path, location, reasons) = (Vec::new(), None, Vec::new());
        found.problems.push(Problem { metric: Metric::Grid, path, location, text, reasons });
    } else {
        found.notes.push(text);
    }
}
