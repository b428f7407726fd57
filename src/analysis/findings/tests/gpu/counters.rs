//! Faults that only hardware counters know of.

use super::{check_traces, findings, program};
use crate::{
    Trace,
    analysis::{Finding, FindingKind},
    trace::{
        MetricMeaning,
        sample::{GpuTrace, measure_work},
    },
};

/// The highest clock of the GPU in these programs, in hertz.
const HIGHEST: f64 = 1.98e9;

/// Adds counters: the SMs are busy all the time, the tensor cores in kernels with `tensor` in their name, the memory in
/// those with `copy`; and the clock.
fn measured(program: &mut GpuTrace, clock: f64) -> Trace {
    let mut trace = program.trace();
    let metrics =
        [MetricMeaning::SmActive, MetricMeaning::TensorActive, MetricMeaning::DramActive, MetricMeaning::SmClock];
    measure_work(&mut trace, 250, metrics, [0.0, 0.0, 0.0, clock], |work| {
        let name = work.name().to_string();
        let busy = |word: &str| if name.contains(word) { 85.0 } else { 1.0 };
        [95.0, busy("tensor"), busy("copy"), clock]
    });
    trace
}

/// Returns a program with these kernels in a span of each step, with their durations in microseconds.
fn kernels(kernels: &[(&str, u64)]) -> GpuTrace {
    program(|step| {
        step.span("forward", |step| kernels.iter().for_each(|&(name, micros)| _ = step.launch(name, micros)));
    })
}

fn found(kind: FindingKind, trace: &Trace) -> Option<Finding> {
    findings(trace).into_iter().find(|finding| finding.kind == kind)
}

#[test]
fn a_low_clock_slows_down_what_memory_does_not_limit() {
    // At seven tenths of the clock, the product takes ten sevenths of the time.
    let mut slow = kernels(&[("gemm_tensorop", 4000), ("copy", 2000)]);
    let mut fast = kernels(&[("gemm_tensorop", 2800), ("copy", 2000)]);
    let saved = slow.micros_per_step() - fast.micros_per_step();
    let (slow, fast) = (measured(&mut slow, 0.7 * HIGHEST), measured(&mut fast, HIGHEST));
    check_traces(FindingKind::LowClock, saved, &slow, &fast);
}

#[test]
fn a_clock_does_not_matter_if_memory_is_the_limit_or_it_is_not_known() {
    let copies = &mut kernels(&[("copy", 4000)]);
    assert_eq!(found(FindingKind::LowClock, &measured(copies, 0.5 * HIGHEST)), None);
    let unknown = kernels(&[("gemm_tensorop", 4000)]).trace();
    assert_eq!(found(FindingKind::LowClock, &unknown), None);
    let nearly = &mut kernels(&[("gemm_tensorop", 4000)]);
    assert_eq!(found(FindingKind::LowClock, &measured(nearly, 0.95 * HIGHEST)), None);
}

#[test]
fn counters_find_products_without_tensor_cores_whose_names_do_not_say_so() {
    let lacks = |name: &str| {
        let trace = measured(&mut kernels(&[(name, 4000), ("reduce", 1000)]), HIGHEST);
        found(FindingKind::NoTensorCores, &trace)
    };
    let finding = lacks("matmul_entry").expect("a finding");
    assert!(finding.title.starts_with("products of matrices take"), "{}", finding.title);
    assert!(finding.evidence.iter().any(|line| line.contains("hardware counters do")), "{:?}", finding.evidence);
    let measured = finding.evidence.last().unwrap();
    assert!(measured.ends_with("neither memory nor tensor cores limit it, but other arithmetic, caches or latency."));
    // It uses them; it waits for memory; it is another kind of number; it is no product.
    for name in ["matmul_tensor", "matmul_copy", "dgemm", "softmax"] {
        assert_eq!(lacks(name), None, "{name}");
    }
    // A name alone says it of f32 only.
    let mut unmeasured = kernels(&[("matmul_entry", 4000)]);
    assert_eq!(found(FindingKind::NoTensorCores, &unmeasured.trace()), None);
}

#[test]
fn tensor_cores_do_not_help_where_memory_is_the_limit() {
    let mut plain = kernels(&[("sgemm_128x64_nn", 4000), ("reduce", 1000)]);
    assert!(found(FindingKind::NoTensorCores, &measured(&mut plain, HIGHEST)).is_some());
    let mut bound = kernels(&[("sgemm_128x64_nn_copy", 4000), ("reduce", 1000)]);
    assert_eq!(found(FindingKind::NoTensorCores, &measured(&mut bound, HIGHEST)), None);
}
