use super::{CounterBound, CountersBy};
use crate::{
    Report,
    trace::{GpuCounters, GpuMetric, MetricMeaning, Timestamp, Trace, Work, sample::GpuTrace},
};
use std::time::Duration;

/// A training with products and copies of 2 ms each, and samples of 1 ms on a GPU that does each at its limit.
fn training() -> Trace {
    let mut trace = GpuTrace::default();
    for _ in 0..20 {
        trace.step(|trace| {
            trace.span("forward", |trace| {
                trace.span("attention", |trace| _ = trace.launch("gemm", 2000));
                trace.span("dropout", |trace| _ = trace.launch("copy", 2000));
            });
            trace.synchronize();
        });
    }
    let mut trace = trace.trace();
    let metric = |(meaning, name): (MetricMeaning, &str)| GpuMetric { name: name.to_owned(), meaning };
    let metrics = [
        (MetricMeaning::SmActive, "sm"),
        (MetricMeaning::TensorActive, "tensor"),
        (MetricMeaning::DramActive, "dram"),
        (MetricMeaning::DramRead, "read"),
        (MetricMeaning::DramWrite, "write"),
    ];
    let rates = |name: &str| match name {
        "gemm" => [96.0, 93.0, 19.0, 0.8e12, 0.1e12],
        _ => [97.0, 0.0, 83.0, 2e12, 2e12],
    };
    let mut counters = GpuCounters {
        interval: Duration::from_millis(1),
        metrics: metrics.map(metric).into(),
        ..GpuCounters::default()
    };
    let (first, last) = (trace.start().as_unix_nanos(), trace.work().map(Work::end).max().unwrap());
    for start in (first..last.as_unix_nanos()).step_by(1_000_000) {
        let end = start + 1_000_000;
        let mut values = [0.0; 5];
        for work in trace.work() {
            let overlap = work.end().as_unix_nanos().min(end).saturating_sub(work.start().as_unix_nanos().max(start));
            let rates = rates(&work.name().to_string());
            values.iter_mut().zip(rates).for_each(|(value, rate)| *value += rate * overlap as f64 / 1e6);
        }
        counters.times.push((Timestamp::from_unix_nanos(start), Timestamp::from_unix_nanos(end)));
        counters.values.extend(values);
    }
    trace.gpu_counters.push(counters);
    trace
}

#[test]
fn each_row_names_the_part_of_the_gpu_that_limits_it() {
    let report = Report::of([&training()]);
    let rows = report.counters().rows();
    let found: Vec<_> = rows.iter().map(|row| (row.name.as_str(), row.bound)).collect();
    assert_eq!(found[0].0, "forward");
    assert!(found[1..].contains(&("attention", Some(CounterBound::Tensor))), "{found:?}");
    assert!(found[1..].contains(&("dropout", Some(CounterBound::Memory))), "{found:?}");
    let dropout = rows.iter().find(|row| row.name == "dropout").unwrap();
    let traffic = dropout.dram_bytes_per_second.unwrap();
    assert!((traffic / 4e12 - 1.0).abs() < 0.02, "{traffic}");
    let kernels = report.counters().by(CountersBy::Kernel).rows();
    assert_eq!(kernels.len(), 2);
    assert_eq!(report.counters().by(CountersBy::Step).limit(usize::MAX).rows().len(), 20);
    let text = report.to_string();
    assert!(text.contains("GPU counters") && text.contains("Tensor"), "{text}");
}

#[test]
fn a_value_that_samples_do_not_determine_is_left_out() {
    let mut trace = training();
    // Two samples are not enough to tell two kernels of 2 ms apart.
    trace.gpu_counters[0].times.drain(1..);
    trace.gpu_counters[0].values.drain(5..);
    let report = Report::of([&trace]);
    let kernels = report.counters().by(CountersBy::Kernel).rows();
    assert!(kernels.iter().all(|row| row.name != "copy" || row.dram_active.is_none()), "{kernels:?}");
}
