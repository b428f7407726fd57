//! A window of a training that was recorded on an H200 (`benches/candle`, program `record`), decoded and correlated
//! again.

#![cfg(target_os = "linux")]

use kernspan::{
    Report, Trace,
    report::Average,
    trace::{Detail, Span, Work},
};
use kernspan_candle::kernel_op;
use std::{collections::BTreeMap, time::Duration};

/// Returns the recorded window: two steps of a model with two layers of 64, on batches of 16.
fn recorded() -> Trace {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/gpu/candle.kernspan");
    kernspan::replay(std::fs::File::open(file).unwrap()).unwrap()
}

/// Returns the operations of the kernels that a span launched itself, in order.
fn ops(trace: &Trace, span: Span<'_>) -> Vec<String> {
    let mut work: Vec<_> = trace.work().filter(|work| work.span().is_some_and(|its| its.id() == span.id())).collect();
    work.sort_by_key(|work| work.start());
    work.iter().filter_map(|work| Some(kernel_op(&work.kernel()?.name).into_owned())).collect()
}

fn spans<'a>(trace: &'a Trace, name: &str) -> Vec<Span<'a>> {
    trace.spans().filter(|span| span.name() == name).collect()
}

#[test]
fn every_kernel_is_in_the_module_that_launched_it() {
    let trace = recorded();
    assert!(trace.losses().is_empty(), "{}", trace.losses());
    for name in ["layers.0", "layers.1"] {
        let layers = spans(&trace, name);
        assert_eq!(layers.len(), 2, "one in each step");
        for layer in layers {
            assert_eq!(ops(&trace, layer), ["matmul f32", "add f32"], "x · wᵀ + b");
            let stack: Vec<_> = layer.stack().map(Span::name).collect();
            assert_eq!(stack, [name, "forward", "train_step"]);
        }
    }
    for forward in spans(&trace, "forward") {
        assert_eq!(ops(&trace, forward), ["gelu_erf f32", "gelu_erf f32"]);
    }
    for backward in spans(&trace, "backward") {
        let products = ops(&trace, backward).iter().filter(|op| *op == "matmul f32").count();
        assert_eq!(products, 4, "for each layer the gradients of both factors");
    }
    let outside: Vec<_> = trace.work().filter(|work| work.span().is_none()).collect();
    assert!(outside.iter().all(|work| matches!(work.detail(), Detail::Copy(_))), "the loop itself reads results back");
}

#[test]
fn both_steps_launch_the_same() {
    let trace = recorded();
    let mut steps: Vec<BTreeMap<(&str, String), usize>> = vec![BTreeMap::new(); 2];
    for work in trace.work().filter(|work| work.kernel().is_some()) {
        let name = work.span().map_or("", Span::name);
        let step = (work.step().unwrap().number() - trace.steps()[0].number()) as usize;
        *steps[step].entry((name, work.name().to_string())).or_default() += 1;
    }
    assert_eq!(steps[0], steps[1]);
    assert!(steps[0].values().sum::<usize>() > 100);
}

#[test]
fn the_times_of_a_spans_kernels_are_its_gpu_time() {
    let trace = recorded();
    let report = Report::of([&trace]);
    let mut own: BTreeMap<&str, Duration> = BTreeMap::new();
    let mut total: BTreeMap<&str, Duration> = BTreeMap::new();
    for work in trace.work() {
        let Some(span) = work.span() else {
            *own.entry(Average::UNATTRIBUTED).or_default() += work.duration();
            continue;
        };
        *own.entry(span.name()).or_default() += work.duration();
        span.stack().for_each(|span| *total.entry(span.name()).or_default() += work.duration());
    }
    let rows = report.averages().rows();
    assert!(rows.len() >= 8);
    for row in rows {
        assert_eq!(row.self_gpu, own.get(row.name.as_str()).copied().unwrap_or_default(), "{}", row.name);
        if row.name != Average::UNATTRIBUTED {
            assert_eq!(row.total_gpu, total.get(row.name.as_str()).copied().unwrap_or_default(), "{}", row.name);
        }
    }
    let all: Duration = trace.work().map(Work::duration).sum();
    let kernels: Duration = report.kernels().group_by(kernel_op).rows().iter().map(|row| row.total).sum();
    assert_eq!(kernels, all);
}

#[test]
fn spans_say_what_they_took_and_the_report_how_much_of_the_peak_that_is() {
    const LAYER: u64 = 16 * 64 * (2 * 64 + 1);
    let trace = recorded();
    let layer = spans(&trace, "layers.1")[0];
    let facts = ["op.module", "op.shape.input", "op.shape.output", "op.dtype.input", "op.device", "op.gemm"];
    let values = facts.map(|fact| layer.field(fact).unwrap().to_string());
    assert_eq!(values, ["layers.1", "[16, 64]", "[16, 64]", "f32", "cuda:0", "16x64x64"]);

    let report = Report::of([&trace]);
    let rows = report.averages().rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!(row("layers.1").total_flops, 2 * LAYER);
    assert_eq!(row("forward").total_flops, 2 * 2 * LAYER);
    assert_eq!(row("backward").total_flops, 2 * 2 * 2 * LAYER);
    assert_eq!(row("train_step").total_flops, 2 * 3 * 2 * LAYER);
    for name in ["layers.1", "forward", "backward", "train_step"] {
        let row = row(name);
        let rate = row.total_flops as f64 / row.total_gpu.as_secs_f64();
        assert!((row.flops_per_second.unwrap() - rate).abs() < 1e-6 * rate, "{name}");
        // The peak of an H200 with f32 is 67 · 10¹² FLOP/s.
        assert!((row.gpu_mfu.unwrap() - 100.0 * rate / 67e12).abs() < 1e-9, "{name}");
    }
    let usage = report.gpu_steps().devices()[0].usage;
    assert_eq!(usage.flops, Some(2 * 3 * 2 * LAYER));
}

#[test]
fn kernels_are_told_apart_by_the_product_they_are_of() {
    let report = Report::of([&recorded()]);
    let rows = report.kernels().group_by(kernel_op).group_by_shape(true).rows();
    let products: Vec<_> = rows.iter().filter(|row| row.name == "matmul f32").collect();
    let forward = products.iter().find(|row| row.gemm.as_deref() == Some("16x64x64")).unwrap();
    assert_eq!((forward.calls, forward.shapes.as_deref()), (4, Some("[16, 64]")));
    // Products of the backward pass belong to no module.
    let others: u64 = products.iter().filter(|row| row.gemm.is_none()).map(|row| row.calls).sum();
    assert_eq!(others, 8);
}

#[test]
fn memory_belongs_to_the_modules_that_allocated_it() {
    let trace = recorded();
    let report = Report::of([&trace]);
    let rows = report.averages().rows();
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    // Each step has two results of 16 × 64 elements of 4 bytes: the product, and the sum with the bias.
    assert_eq!(row("layers.0").self_gpu_memory, 2 * 2 * 16 * 64 * 4);
    assert_eq!(row("train_step").total_gpu_memory, 0, "a step leaves nothing behind");
    let memory = report.memory();
    let peak = memory.peaks().next().unwrap();
    assert_eq!(peak.before + peak.owners.iter().map(|owner| owner.bytes).sum::<u64>(), peak.in_use);
    assert_eq!(Some(peak.in_use), rows.iter().filter_map(|row| row.peak_gpu_memory).max());
    let weights = 2 * (64 * 64 + 64) * 4;
    assert!(peak.before >= 3 * weights, "weights and both moments are older than the window");
}
