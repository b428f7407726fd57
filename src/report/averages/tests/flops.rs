//! Tests of floating-point operations in the rows: which numbers count, and the peak of which GPU.

use crate::{
    analysis::{Analysis, SpanFlops},
    report::{Average, Report, SortBy},
    trace::{
        DeviceId, Operation, SpanId, StepId, Stream, StreamId, Trace, Value, convention,
        sample::{add_operations, gpu_trace, h200, operations_trace, set_fields, set_flops},
    },
};
use std::{sync::Arc, time::Duration};

/// The sample, whose forward passes take 5 µs at the peak, and whose backward passes take 10.
fn trace() -> Trace {
    let mut trace = gpu_trace();
    for step in [0, 3] {
        set_flops(&mut trace, step + 1, 335_000_000, "f32");
        set_flops(&mut trace, step + 2, 9_895_000_000, "BF16");
    }
    trace
}

/// By name: `backward`, `forward`, `train_step`.
fn rows(trace: &Trace) -> [Average; 3] {
    let mut report = Report::default();
    report.add(&Analysis::of(trace));
    let mut rows = report.averages().sort_by(SortBy::Name).rows();
    rows.retain(|row| row.name != Average::UNATTRIBUTED);
    rows.try_into().unwrap()
}

fn total_flops(trace: &Trace) -> [u64; 3] {
    rows(trace).map(|row| row.total_flops)
}

fn mfu(trace: &Trace) -> [Option<String>; 3] {
    rows(trace).map(|row| row.gpu_mfu.map(|mfu| format!("{mfu:.3}")))
}

fn some<const N: usize>(texts: [&str; N]) -> [Option<String>; N] {
    texts.map(|text| (text != "–").then(|| text.to_owned()))
}

#[test]
fn a_span_comes_to_what_it_says_or_what_is_nested_in_it() {
    let mut trace = trace();
    assert_eq!(total_flops(&trace), [19_790_000_000, 670_000_000, 20_460_000_000]);
    assert_eq!(rows(&trace).map(|row| row.flops), [19_790_000_000, 670_000_000, 0], "the spans' own");
    // The first step states its number itself, and the second does not.
    set_flops(&mut trace, 0, 5_000_000_000, "f32");
    assert_eq!(total_flops(&trace), [19_790_000_000, 670_000_000, 5_000_000_000 + 10_230_000_000]);
}

#[test]
fn operations_of_nested_spans_of_a_row_are_not_counted_twice() {
    let mut trace = gpu_trace();
    let callsite = trace.spans[0].callsite;
    trace.spans.iter_mut().for_each(|span| span.callsite = callsite);
    [1, 2].into_iter().for_each(|span| set_flops(&mut trace, span, 74, "f32"));
    let mut report = Report::default();
    report.add(&Analysis::of(&trace));
    let row = &report.averages().rows()[0];
    assert_eq!((row.name.as_str(), row.flops, row.total_flops), ("train_step", 148, 148));
    // In 148 µs.
    assert_eq!(row.flops_per_second.map(f64::round), Some(1e6));
}

#[test]
fn utilisation_is_the_time_at_the_peak_by_the_gpu_time() {
    // 2 × 10 of 100 µs, 2 × 5 of 40, and all of these of 148.
    assert_eq!(mfu(&trace()), some(["20.000", "25.000", "20.270"]));
    let rates = rows(&trace()).map(|row| row.flops_per_second.unwrap().round());
    assert_eq!(rates, [197.9e12, 16.75e12, 138_243_243_243_243.0]);
}

#[test]
fn the_input_says_of_what_type_the_operations_are() {
    let mut trace = trace();
    let text = |text: &str| Value::Str(Arc::from(text));
    let flops = (convention::FLOPS, Value::U64(335_000_000));
    let types = [("op.dtype.mask", text("bf16")), ("op.dtype.input", text("f32"))];
    [1, 4]
        .into_iter()
        .for_each(|span| set_fields(&mut trace, span, &[flops.clone(), types[0].clone(), types[1].clone()]));
    assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"));
    [1, 4].into_iter().for_each(|span| set_fields(&mut trace, span, &[flops.clone(), ("op.dtype.lhs", text("f32"))]));
    assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "the first, where there is no input");
    let tf32 = [flops.clone(), ("op.compute", text("f32")), ("op.dtype.input", text("f64"))];
    [1, 4].into_iter().for_each(|span| set_fields(&mut trace, span, &tf32));
    assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "the type of the computation, if it is stated");
    let tokens = [flops.clone(), ("op.dtype.input", text("u32")), ("op.dtype.output", text("F32"))];
    [1, 4].into_iter().for_each(|span| set_fields(&mut trace, span, &tokens));
    assert_eq!(mfu(&trace)[1].as_deref(), Some("25.000"), "the result's, where numbers go in that are not counted");
    set_fields(&mut trace, 1, &[flops]);
    assert_eq!(mfu(&trace), some(["20.000", "–", "–"]));
    assert_eq!(SpanFlops::of(&trace).why_peak_unknown(), Some("no op.dtype.… with FLOPs of forward"));
}

#[test]
fn there_is_no_utilisation_where_a_peak_is_not_known() {
    let mut trace = trace();
    set_flops(&mut trace, 4, 1, "u32");
    assert_eq!(mfu(&trace), some(["20.000", "–", "–"]));
    assert_eq!(SpanFlops::of(&trace).why_peak_unknown(), Some("peak of NVIDIA H200 for u32 not known"));
    assert!(rows(&trace).iter().all(|row| row.flops_per_second.is_some()));
    trace.devices[0].name = "NVIDIA Foo".to_owned();
    assert_eq!(mfu(&trace), some(["–", "–", "–"]));
    // A peak need not be known for operations that do not count.
    let mut trace = self::trace();
    [1, 4].into_iter().for_each(|span| set_flops(&mut trace, span, 1, "u32"));
    [0, 3].into_iter().for_each(|span| set_flops(&mut trace, span, 495_800_000, "f32"));
    assert_eq!(mfu(&trace), some(["20.000", "–", "10.000"]), "7.4 of 74 µs");
    assert_eq!(SpanFlops::of(&trace).why_peak_unknown(), None);
}

#[test]
fn the_peak_is_that_of_the_gpu_that_worked_for_the_span() {
    let mut trace = trace();
    let mut second = h200();
    second.id = DeviceId::new(1);
    second.name = "NVIDIA H100 PCIe".to_owned();
    trace.devices.push(second);
    assert_eq!(mfu(&trace), some(["20.000", "25.000", "20.270"]), "only one worked");
    // Graphs run on the other, and backward passes on both.
    trace.streams[1].device = DeviceId::new(1);
    trace.streams[2].device = DeviceId::new(1);
    assert_eq!(mfu(&trace), some(["–", "25.000", "–"]));
    // Now it does all: 335 / 51 µs of 20, and 9895 / 756.5 of 50.
    trace.streams[0].device = DeviceId::new(1);
    assert_eq!(mfu(&trace)[..2], some(["26.160", "32.843"]));
    // With nothing done for a forward pass, it is the only one that it can have been.
    trace.work.retain(|work| work.span.is_none_or(|span| span.index() % 3 != 1));
    assert_eq!(mfu(&trace)[1..], some(["–", "36.386"]), "19.6486 of 54 µs");
}

#[test]
fn without_a_gpu_operations_are_by_the_hosts_time() {
    let mut trace = trace();
    trace.work.clear();
    let [backward, forward, step] = rows(&trace);
    // In 80, 60 and 180 µs.
    let rates = [backward, forward, step].map(|row| (row.flops_per_second.unwrap() / 1e9).round());
    assert_eq!(rates, [247_375.0, 11_167.0, 113_667.0]);
    assert_eq!(mfu(&trace), some(["–", "–", "–"]));
}

#[test]
fn spans_count_for_the_step_they_began_in() {
    let mut trace = trace();
    let steps = |trace: &Trace| [0, 1].map(|step| SpanFlops::of(trace).of_step(StepId::new(step)).count);
    assert_eq!(steps(&trace), [10_230_000_000; 2]);
    // An epoch is around both, and states nothing.
    trace.spans[3].parent = Some(SpanId::new(0));
    assert_eq!(steps(&trace), [10_230_000_000; 2]);
    set_flops(&mut trace, 3, 7, "f32");
    assert_eq!(steps(&trace), [10_230_000_000, 7]);
}

#[test]
fn operations_count_for_their_span_as_nested_spans_do() {
    let mut trace = operations_trace();
    // Each step: 335 M in `forward`, 670 M + 8 in `backward`, and 8 more in `train_step`.
    assert_eq!(total_flops(&trace), [1_340_000_016, 670_000_000, 2_010_000_032]);
    assert_eq!(rows(&trace).map(|row| row.flops), [0; 3], "they are not the spans' own");
    let steps = |trace: &Trace| [0, 1].map(|step| SpanFlops::of(trace).of_step(StepId::new(step)).count);
    assert_eq!(steps(&trace), [1_005_000_016; 2]);
    // The first `backward` states its own number, so that the operations in it do not count.
    set_flops(&mut trace, 2, 7, "f32");
    assert_eq!(total_flops(&trace)[0], 7 + 670_000_008);
    assert_eq!(steps(&trace), [335_000_000 + 7 + 8, 1_005_000_016]);
    set_flops(&mut trace, 0, 5, "f32");
    assert_eq!(steps(&trace), [5, 1_005_000_016]);
    assert_eq!(total_flops(&trace)[2], 5 + 1_005_000_016);
}

#[test]
fn operations_of_no_span_count_for_their_step() {
    let mut trace = gpu_trace();
    let add = Arc::new(Operation::new("add").with("op.flops", 9_u64));
    add_operations(&mut trace, &[(&add, None, 0), (&add, None, 0)], &[]);
    trace.operation_calls[0].step = Some(StepId::new(1));
    let flops = SpanFlops::of(&trace);
    assert_eq!([0, 1].map(|step| flops.of_step(StepId::new(step)).count), [0, 9]);
    assert_eq!(flops.why_peak_unknown(), Some("no op.dtype.… with FLOPs of add"));
    assert_eq!(total_flops(&trace), [0; 3]);
}

#[test]
fn the_peak_is_that_of_the_gpu_that_did_the_operations() {
    let (mut trace, dtype) = (operations_trace(), |operation: Operation| operation.with("op.dtype.lhs", "f32"));
    let operations = trace.operations.iter().map(|operation| Arc::new(dtype(Operation::clone(operation))));
    trace.operations = operations.collect();
    // 5 of 20 µs, and 10 of 50 but for sixteen operations.
    assert_eq!(mfu(&trace), some(["20.000", "25.000", "20.270"]));
    let mut second = h200();
    (second.id, second.name) = (DeviceId::new(1), "NVIDIA H100 PCIe".to_owned());
    trace.devices.push(second);
    // Now the other did something for the second `forward`, too, but not for its batch.
    let stream = StreamId::new(trace.streams.len());
    trace.streams.push(Stream { device: DeviceId::new(1), ..trace.streams[0] });
    let mut copy = trace.work[0].clone();
    (copy.stream, copy.span, copy.call) = (stream, Some(SpanId::new(4)), None);
    trace.work.push(copy);
    let ideal = SpanFlops::of(&trace).of_span(SpanId::new(4)).ideal();
    assert_eq!(ideal, Some(Duration::from_micros(5)), "the batch has one GPU, where the span has two");
    trace.api_calls.iter_mut().for_each(|call| call.batch = None);
    assert_eq!(SpanFlops::of(&trace).of_span(SpanId::new(4)).ideal(), None);
}
