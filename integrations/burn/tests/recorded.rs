//! Windows of a training that were recorded on an H200 (`benches/burn`, program `record`), decoded and correlated
//! again: CUPTI's records, the origins that came through Burn's queues, and the reports of Burn's observers.

#![cfg(target_os = "linux")]

use kernspan::{
    Report, Trace,
    trace::{Allocation, Attribution, OperationCall, Span, Work},
};
use std::collections::BTreeMap;

fn recorded(name: &str) -> Trace {
    let file = format!("{}/../../tests/fixtures/gpu/{name}.kernspan", env!("CARGO_MANIFEST_DIR"));
    kernspan::replay(std::fs::File::open(file).unwrap()).unwrap()
}

fn names<'a>(of: impl Iterator<Item = Span<'a>>) -> Vec<&'a str> {
    of.map(Span::name).collect()
}

fn operations(work: Work<'_>) -> Vec<&str> {
    work.operations().map(OperationCall::name).collect()
}

#[test]
fn every_kernel_is_in_the_span_that_asked_for_it() {
    let trace = recorded("burn");
    assert!(trace.losses().is_empty(), "{}", trace.losses());
    let mut owners = BTreeMap::<&str, u32>::new();
    for work in trace.work().filter(|work| work.span().is_some()) {
        assert_eq!(work.attribution(), Attribution::HandedOff, "no kernel is launched by a user's thread");
        *owners.entry(work.span().unwrap().name()).or_default() += 1;
    }
    assert_eq!(owners["layer"], 4, "each of two layers has a product, and a kernel fused from the rest");
    assert_eq!(owners["optimizer"], 2, "one kernel for each of two parameters");
    assert!(owners["backward"] > 10 && owners["forward"] > 3);
    assert_eq!(owners["data"], 1);
    // The loop itself sums up the batch, in no span.
    let unattributed: Vec<_> = trace.work().filter(|work| work.span().is_none()).map(operations).collect();
    assert_eq!(unattributed, [vec!["sum"], vec![]]);
}

#[test]
fn a_kernel_knows_what_was_fused_into_it() {
    let trace = recorded("burn");
    let gelu: Vec<_> = trace
        .work()
        .filter(|work| {
            work.span().is_some_and(|span| span.name() == "layer") && work.name().to_string().contains("fuse")
        })
        .collect();
    assert_eq!(gelu.len(), 2);
    for kernel in gelu {
        assert_eq!(operations(kernel), ["add", "div_scalar", "erf", "add_scalar", "mul", "div_scalar"]);
        assert_eq!(names(kernel.spans()), ["layer"]);
    }
    let products = trace.work().filter(|work| operations(*work).contains(&"matmul")).count();
    assert_eq!(products, 5, "two forward, three backward: the input needs no gradient");
}

#[test]
fn operations_have_shapes_and_flops() {
    let trace = recorded("burn");
    let product = trace.operations().find(|operation| operation.name() == "matmul").unwrap();
    let op = product.fields().op();
    assert_eq!((op.flops(), op.gemm()), (Some(2 * 16 * 64 * 64), Some("16x64x64")));
    assert_eq!(names(product.span().unwrap().stack()), ["layer", "forward", "train_step"]);
    let report = Report::of([&trace]);
    let forward = report.averages().rows().into_iter().find(|row| row.name == "layer").unwrap();
    // Each of two layers has a product, the sum with the bias, and five operations of a GELU.
    assert_eq!(forward.total_flops, 2 * (2 * 16 * 64 * 64 + 6 * 16 * 64));
    let rows = report.operations().rows();
    let product = rows.iter().find(|row| row.name == "matmul").unwrap();
    assert_eq!((product.calls, product.kernels), (5, 5));
}

#[test]
fn a_kernel_of_several_spans_names_them_all_and_belongs_to_the_first() {
    let trace = recorded("burn-first");
    let kernel = |first: &str| {
        let several = trace.work().find(|work| operations(*work).first() == Some(&first) && work.spans().count() > 1);
        let kernel = several.unwrap();
        assert_eq!(kernel.span().map(Span::id), kernel.spans().next().map(Span::id));
        names(kernel.spans())
    };
    // The last layer's GELU is fused with the beginning of the loss, and the last gradient with the update of its
    // parameter.
    assert_eq!(kernel("add"), ["layer", "forward"]);
    assert_eq!(kernel("matmul"), ["backward", "optimizer"]);
}

#[test]
fn what_burn_tunes_is_kept_apart() {
    let trace = recorded("burn-first");
    let tuning: Vec<_> = trace.spans().filter(|span| span.name() == "autotune").collect();
    assert_eq!(tuning.len(), 10);
    let launches: u64 = tuning.iter().map(|span| span.field("launches").unwrap().as_u64().unwrap()).sum();
    let (tuned, others): (Vec<_>, Vec<_>) =
        trace.work().partition(|work| work.span().is_some_and(|span| span.name() == "autotune"));
    let kernels = tuned.iter().filter(|work| work.kernel().is_some()).count() as u64;
    assert_eq!(launches, kernels);
    assert!(tuned.iter().all(|work| work.attribution() == Attribution::Direct && work.operations().len() == 0));
    // The training's own work is the same as without autotuning.
    assert_eq!((kernels, others.len()), (951, 45));
    // Autotuning takes almost all of the step, on the device's thread, while the user's thread waits.
    let waited: std::time::Duration = tuning.iter().map(|span| span.duration()).sum();
    let step = trace.spans().find(|span| span.name() == "train_step").unwrap();
    assert!(waited > step.duration() * 9 / 10);
    assert!(tuning.iter().all(|span| span.track().thread_name().starts_with("DSD")));
    // Kernels are compiled at their first launch.
    assert!(trace.api_calls().any(|call| call.name() == "cuModuleLoadData"));
}

#[test]
fn tensors_are_allocated_in_the_spans_that_request_them() {
    let trace = recorded("burn-memory");
    assert!(trace.allocations().all(Allocation::by_framework));
    let allocated = |name: &str, kib: u64| {
        let in_span = trace.allocations().filter(|it| it.span().is_some_and(|span| span.name() == name));
        in_span.filter(|it| it.delta() == kib as i64 * 1024).count()
    };
    // Each of two layers has a product and an activation, of 16 by 64 numbers, and weights of 64 by 64.
    assert_eq!((allocated("layer", 4), allocated("layer", 16)), (4, 0));
    assert_eq!((allocated("backward", 16), allocated("optimizer", 16)), (2, 2));
    // A step ends with what it began with, but for the batch, of 64 bytes, and its sum, of 4, which is read out.
    let (first, last) = (trace.allocations().next().unwrap(), trace.allocations().last().unwrap());
    assert_eq!((first.bytes(), last.in_use()), (Some(64), first.in_use() - 64 + 4));
    let peak = trace.allocations().max_by_key(|it| it.in_use()).unwrap();
    assert_eq!(peak.span().map(Span::name), Some("backward"));
}
