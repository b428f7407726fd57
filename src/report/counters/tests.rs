use super::CountersBy;
use crate::{
    Report,
    analysis::CounterBound,
    trace::{
        MetricMeaning, Trace,
        sample::{GpuTrace, measure_work, set_fields},
    },
};

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
    let metrics = [
        MetricMeaning::SmActive,
        MetricMeaning::TensorActive,
        MetricMeaning::DramActive,
        MetricMeaning::DramRead,
        MetricMeaning::DramWrite,
    ];
    measure_work(&mut trace, 1000, metrics, [0.0; 5], |work| match &*work.name().to_string() {
        "gemm" => [96.0, 93.0, 19.0, 0.8e12, 0.1e12],
        _ => [97.0, 0.0, 83.0, 2e12, 2e12],
    });
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

#[test]
fn an_intensity_needs_bytes_that_are_known_to_a_quarter() {
    let row = |bytes: f64| {
        let mut trace = training();
        let spans: Vec<_> = trace.spans().map(|span| span.name() == "attention").collect();
        let attention = spans.iter().enumerate().filter(|(_, is_one)| **is_one);
        attention.for_each(|(span, _)| set_fields(&mut trace, span, &[("op.flops", 1_000_000_000_000_u64)]));
        trace.gpu_counters.clear();
        measure_work(&mut trace, 1000, [MetricMeaning::DramRead, MetricMeaning::DramWrite], [0.0; 2], |work| {
            if work.name().to_string() == "gemm" { [bytes, 0.0] } else { [2e12, 2e12] }
        });
        let rows = Report::of([&trace]).counters().rows();
        rows.into_iter().find(|row| row.name == "attention").unwrap()
    };
    let (little, much) = (row(1e9), row(1e12));
    assert!(little.dram_bytes_per_second.is_some() && little.intensity.is_none(), "{little:?}");
    assert!((much.intensity.unwrap() / 500.0 - 1.0).abs() < 0.05, "{much:?}");
}

#[cfg(feature = "serde")]
#[test]
fn the_serialized_report_has_spans_modules_and_kernels() {
    let mut trace = training();
    let spans: Vec<_> = trace.spans().map(|span| span.name() == "dropout").collect();
    let dropout = spans.iter().enumerate().filter(|(_, is_one)| **is_one);
    dropout.for_each(|(span, _)| set_fields(&mut trace, span, &[("op.module", "layers.0")]));
    let report = serde_json::to_value(Report::of([&trace])).unwrap();
    let names = |key: &str| {
        let mut names: Vec<_> = report[key].as_array().unwrap().iter().map(|row| row["name"].to_string()).collect();
        names.sort();
        names.join(" ")
    };
    assert_eq!(names("counters"), r#""attention" "dropout" "forward""#);
    assert_eq!(
        (names("module_counters"), names("kernel_counters")),
        (r#""layers.0""#.into(), r#""copy" "gemm""#.into())
    );
    let bytes = report["module_counters"][0]["dram_bytes_per_second"].as_f64().unwrap();
    assert!((bytes / 4e12 - 1.0).abs() < 0.02, "{bytes}");
    let without = serde_json::to_value(Report::of([&Trace::default()])).unwrap();
    assert!(["counters", "module_counters", "kernel_counters"].iter().all(|key| without.get(key).is_none()));
}
