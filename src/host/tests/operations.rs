//! Tests of operations that frameworks report, which are written into the lanes beside the spans.

use crate::{
    Collected, Profiler, Schedule, Trace,
    analysis::MemoryFrame,
    correlate::join_gpu,
    framework::{HandOver, Origin},
    host::{
        Host,
        tests::device_calls::{call, traces},
    },
    recording::{GpuRecording, WorkRecord},
    trace::{ApiCall, Attribution, Detail, MemoryFill, Operation, OperationCall, Span, Work},
};
use std::{
    sync::{Arc, mpsc},
    thread,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

fn operation(name: &str) -> Arc<Operation> {
    Arc::new(Operation::new(name))
}

/// Runs `work` on a thread that sees the same spans.
fn elsewhere(work: impl FnOnce() + Send) {
    let own = tracing::dispatcher::get_default(Clone::clone);
    thread::scope(|scope| {
        scope.spawn(|| tracing::dispatcher::with_default(&own, work));
    });
}

/// Reports each operation on behalf of its origin.
fn report(hand_over: &HandOver, operations: &[(Origin, &Arc<Operation>)]) {
    for (origin, operation) in operations {
        hand_over.adopt(*origin);
        hand_over.operation(operation);
    }
}

fn names<'a>(operations: impl Iterator<Item = OperationCall<'a>>) -> Vec<&'a str> {
    operations.map(OperationCall::name).collect()
}

fn owners(trace: &Trace) -> Vec<(&str, Option<&str>, Attribution)> {
    let operations = trace.operations();
    operations.map(|call| (call.name(), call.span().map(Span::name), call.attribution())).collect()
}

/// Returns the trace with a piece of work for each call.
fn with_work(trace: &Trace) -> Trace {
    let mut trace = trace.clone();
    let record = |correlation| WorkRecord {
        detail: Detail::Fill(MemoryFill::default()),
        device: 0,
        context: 1,
        stream: correlation,
        start: trace.start,
        end: trace.end,
        correlation,
        graph: None,
    };
    let work = trace.api_calls().map(|call| record(call.correlation())).chain([record(999)]).collect();
    let requested = trace.api_calls().map(ApiCall::start).collect();
    join_gpu(&mut trace, GpuRecording { work, ..GpuRecording::default() }, requested);
    trace
}

/// The operations and spans of the work of each call, by its number.
fn done(trace: &Trace) -> Vec<(u32, Vec<&str>, Vec<&str>)> {
    let spans = |work: Work<'_>| work.spans().map(|span| trace.span(span.id()).name()).collect();
    let of = |work: Work<'_>| {
        let operations = work.operations().map(|call| trace.operations().nth(call.id().index()).unwrap().name());
        (work.correlation(), operations.collect(), spans(work))
    };
    trace.work().map(of).collect()
}

#[test]
fn operations_belong_to_the_origin_that_the_thread_has_adopted() {
    let add = operation("add");
    let traces = traces(|profiler, _| {
        let hand_over = profiler.hand_over();
        let early = info_span!("early").in_scope(|| {
            hand_over.operation(&add);
            hand_over.origin()
        });
        profiler.start();
        let outer = info_span!("outer").entered();
        let inner = info_span!("inner").in_scope(|| hand_over.origin());
        hand_over.operation(&add);
        let outside = hand_over.origin();
        drop(outer);
        hand_over.operation(&add);
        elsewhere(|| {
            report(&hand_over, &[(inner.in_batch(1), &add), (outside, &add), (early.in_batch(1), &add)]);
            hand_over.release();
            info_span!("of the worker").in_scope(|| hand_over.operation(&operation("mul")));
        });
        profiler.stop();
        hand_over.operation(&add);
    });
    let (direct, handed, nobody) = (Attribution::Direct, Attribution::HandedOff, Attribution::Unattributed);
    let expected = [
        ("add", Some("outer"), direct),
        ("add", None, nobody),
        ("add", Some("inner"), handed),
        ("add", Some("outer"), handed),
        ("add", None, Attribution::Before),
        ("mul", Some("of the worker"), direct),
    ];
    assert_eq!(owners(&traces[0]), expected);
    assert_eq!(traces[0].operations.len(), 2, "an operation reported again is kept once");
    assert_eq!(Arc::strong_count(&add), 2, "and by nobody but the trace");
    let threads: Vec<_> = traces[0].operations().map(OperationCall::thread).collect();
    assert!(threads[0] == threads[1] && threads[1] != threads[2] && threads[2] == threads[5]);
    assert!(traces[0].operations().all(|call| (traces[0].start..=traces[0].end).contains(&call.at())));
}

#[test]
fn work_was_done_for_the_operations_of_its_batch() {
    let [matmul, add, mul] = ["matmul", "add", "mul"].map(operation);
    let traces = traces(|profiler, host| {
        let hand_over = profiler.hand_over();
        profiler.start();
        let [first, second] =
            ["first", "second"].map(|name| info_span!("span", op.name = name).in_scope(|| hand_over.origin()));
        elsewhere(|| {
            let (one, two) = (first.in_batch(7), second.in_batch(7));
            report(&hand_over, &[(one, &matmul), (two, &add), (one, &add), (first.in_batch(9), &mul)]);
            hand_over.release();
            hand_over.operation(&mul);
        });
        elsewhere(|| {
            // The last batch has no operations, as if they had been reported in another window.
            let batches = [second.in_batch(7), first.in_batch(9), first, second.in_batch(8)];
            for (origin, number) in batches.into_iter().zip(1..) {
                hand_over.adopt(origin);
                call(host, number);
            }
            hand_over.adopt(first.in_batch(7));
            info_span!("of the worker").in_scope(|| call(host, 5));
            hand_over.release();
            call(host, 6);
        });
        profiler.stop();
    });
    let trace = with_work(&traces[0]);
    assert_eq!(names(trace.operations()), ["matmul", "add", "add", "mul", "mul"]);
    let expected = [
        (1, vec!["matmul", "add", "add"], vec!["second", "first"]),
        (2, vec!["mul"], vec!["first"]),
        (3, vec![], vec!["first"]),
        (4, vec![], vec!["second"]),
        (5, vec!["matmul", "add", "add"], vec!["first", "second"]),
        (6, vec![], vec![]),
        (999, vec![], vec![]),
    ];
    assert_eq!(done(&trace), expected);
}

#[test]
fn the_batches_of_a_window_are_its_own() {
    let [add, mul] = ["add", "mul"].map(operation);
    let traces = traces(|profiler, host: &Host| {
        let hand_over = profiler.hand_over();
        for operation in [&add, &mul] {
            profiler.start();
            info_span!("work").in_scope(|| report(&hand_over, &[(hand_over.origin().in_batch(1), operation)]));
            call(host, 1);
            profiler.stop();
            // An origin that is adopted while nothing is recorded holds in the next window.
            hand_over.adopt(hand_over.origin().in_batch(2));
        }
        profiler.start();
        hand_over.operation(&add);
        call(host, 1);
        profiler.stop();
    });
    let done: Vec<_> = traces.iter().map(|trace| done(&with_work(trace))[0].1.join(" ")).collect();
    assert_eq!(done, ["add", "mul", "add"]);
}

#[test]
fn an_operation_belongs_to_the_step_it_was_asked_for_in() {
    let collected = Collected::new();
    let builder = Profiler::builder().schedule(Schedule::steps(0..=2)).export(collected.clone());
    let (layer, profiler) = builder.build().unwrap();
    let (hand_over, add) = (profiler.hand_over(), operation("add"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let origin = info_span!("zero").in_scope(|| hand_over.origin());
        profiler.step();
        report(&hand_over, &[(origin, &add)]);
        hand_over.release();
        hand_over.operation(&add);
        profiler.step();
        // Nothing else is done in this step.
        hand_over.operation(&add);
    });
    profiler.finish().unwrap();
    let trace = collected.only();
    let steps: Vec<_> = trace.operations().map(|call| call.step().unwrap().number()).collect();
    assert_eq!(steps, [0, 1, 2]);
}

#[test]
fn the_spans_of_all_threads_are_told_while_they_are_open() {
    traces(|profiler, _| {
        let hand_over = profiler.hand_over();
        let path =
            |spans: &[MemoryFrame]| spans.iter().map(|span| span.name.to_string()).collect::<Vec<_>>().join(" > ");
        assert_eq!(hand_over.open_spans(), []);
        assert_eq!(hand_over.open_spans_of_threads(), []);
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        // They are known whether or not a window is open.
        for records in [false, true] {
            if records {
                profiler.start();
            }
            let step = info_span!("step").entered();
            let (inside, is_inside) = mpsc::channel();
            let (leave, left) = mpsc::channel::<()>();
            let of_thread = (dispatch.clone(), hand_over.clone());
            let loader = thread::Builder::new().name("loader".to_owned()).spawn(move || {
                let (dispatch, hand_over) = of_thread;
                tracing::dispatcher::with_default(&dispatch, || {
                    let _load = info_span!("load", op.name = "decode").entered();
                    inside.send(hand_over.open_spans()).unwrap();
                    let _ = left.recv();
                });
            });
            assert_eq!(path(&is_inside.recv().unwrap()), "decode");
            info_span!("forward").in_scope(|| {
                assert_eq!(path(&hand_over.open_spans()), "step > forward");
                let mut all = hand_over.open_spans_of_threads();
                all.sort_by_key(|open| path(&open.spans));
                let paths: Vec<_> = all.iter().map(|open| path(&open.spans)).collect();
                assert_eq!(paths, ["decode", "step > forward"]);
                assert_eq!(all[0].thread, "loader");
                assert!(all[1].spans[0].file.is_some_and(|file| file.ends_with("operations.rs")));
            });
            drop(step);
            leave.send(()).unwrap();
            loader.unwrap().join().unwrap();
            assert_eq!(hand_over.open_spans_of_threads(), []);
        }
    });
}
