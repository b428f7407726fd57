//! Tests of a device's API calls, which are written into the lanes beside the spans.

use crate::{
    Activity, Collected, Profiler, Schedule, Trace,
    clock::Ticks,
    framework::{DeviceWork, PoolUse},
    host::Host,
    recording::{DeviceCall, MemoryCall, MemoryFacts},
    trace::{Attribution, MemoryChange, Span},
};
use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

#[test]
fn memory_facts_are_packed_and_unpacked() {
    for change in [MemoryChange::Allocate, MemoryChange::Free] {
        let all = [(0, 1, false, true), (4096, 3, true, false), ((1 << 47) - 1, (1 << 14) - 1, true, true)];
        for (bytes, context, pooled, by_framework) in all {
            let facts = MemoryFacts { bytes, context, change, pooled, by_framework };
            assert_eq!(MemoryCall::new(Ticks(7), 0x7f00, facts).facts(), facts);
        }
    }
}

/// The traces of a program that makes calls, which are numbered.
pub(in crate::host) fn traces(program: impl FnOnce(&Profiler, &Host)) -> Vec<Arc<Trace>> {
    let collected = Collected::new();
    let builder = Profiler::builder().activities([Activity::Host]).schedule(Schedule::manual());
    let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
    let host = Arc::clone(profiler.session().host());
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || program(&profiler, &host));
    let report = profiler.finish().unwrap();
    assert!(report.losses().is_empty(), "{}", report.losses());
    collected.traces()
}

pub(in crate::host) fn call(host: &Host, number: u32) {
    if let Some(start) = host.enter_call() {
        leave(host, start, number);
    }
}

fn leave(host: &Host, start: Ticks, number: u32) {
    host.exit_call(DeviceWork::Launch, DeviceCall::new(start, host.clock().now(), number, 1, 307, 0));
    host.leave_call();
}

fn calls(trace: &Trace) -> Vec<(u32, Option<&str>, Attribution)> {
    let calls = trace.api_calls();
    calls.map(|call| (call.correlation(), call.span().map(Span::name), call.attribution())).collect()
}

#[test]
fn calls_belong_to_the_innermost_span_of_their_thread() {
    let traces = traces(|profiler, host| {
        call(host, 1);
        profiler.start();
        call(host, 2);
        info_span!("outer").in_scope(|| {
            call(host, 3);
            info_span!("inner").in_scope(|| call(host, 4));
            call(host, 5);
        });
        profiler.stop();
        call(host, 6);
    });
    let (direct, nobody) = (Attribution::Direct, Attribution::Unattributed);
    let expected =
        [(2, None, nobody), (3, Some("outer"), direct), (4, Some("inner"), direct), (5, Some("outer"), direct)];
    assert_eq!(calls(&traces[0]), expected);
}

#[test]
fn a_call_belongs_to_the_window_it_was_made_in() {
    let traces = traces(|profiler, host| {
        info_span!("work").in_scope(|| {
            let before = host.enter_call();
            assert!(before.is_none());
            profiler.start();
            // It returns when the window has closed, and when the next has opened.
            let start = host.enter_call().unwrap();
            profiler.stop();
            leave(host, start, 1);
            profiler.start();
            call(host, 2);
            let start = host.enter_call().unwrap();
            profiler.stop();
            profiler.start();
            leave(host, start, 3);
            call(host, 4);
            profiler.stop();
        });
    });
    let numbers: Vec<Vec<_>> =
        traces.iter().map(|trace| calls(trace).into_iter().map(|(number, ..)| number).collect()).collect();
    assert_eq!(numbers, [vec![1], vec![2, 3], vec![4]]);
    assert!(traces.iter().all(|trace| calls(trace).iter().all(|(_, span, _)| *span == Some("work"))));
}

#[test]
fn calls_made_for_others_belong_to_the_others_spans() {
    let traces = traces(|profiler, host| {
        let hand_over = profiler.hand_over();
        let early = info_span!("early").in_scope(|| hand_over.origin());
        profiler.start();
        let outer = info_span!("outer").entered();
        let first = info_span!("first").in_scope(|| hand_over.origin());
        let second = hand_over.origin();
        drop(outer);
        let own = tracing::dispatcher::get_default(Clone::clone);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _default = tracing::dispatcher::set_default(&own);
                for (origin, number) in [(Some(first), 1), (Some(second), 2), (Some(early), 3), (None, 4)] {
                    match origin {
                        Some(origin) => hand_over.adopt(origin),
                        None => hand_over.release(),
                    }
                    info_span!("of the worker").in_scope(|| call(host, number));
                }
            });
        });
        profiler.stop();
    });
    let handed = Attribution::HandedOff;
    // The origin of the third is from before the window.
    let (before, direct) = (Attribution::Before, Attribution::Direct);
    let expected =
        [(1, Some("first"), handed), (2, Some("outer"), handed), (3, None, before), (4, Some("of the worker"), direct)];
    assert_eq!(calls(&traces[0]), expected);
}

#[test]
fn an_adopted_origin_holds_in_later_windows() {
    let traces = traces(|profiler, host| {
        let hand_over = profiler.hand_over();
        let (submit, submitted) = mpsc::channel();
        let (done, is_done) = mpsc::channel();
        let own = tracing::dispatcher::get_default(Clone::clone);
        thread::scope(|scope| {
            let worker = profiler.hand_over();
            scope.spawn(move || {
                let _default = tracing::dispatcher::set_default(&own);
                for (origin, number) in submitted {
                    Option::into_iter(origin).for_each(|origin| worker.adopt(origin));
                    info_span!("of the worker").in_scope(|| call(host, number));
                    done.send(()).unwrap();
                }
            });
            let work = |origin, number| {
                submit.send((origin, number)).unwrap();
                is_done.recv().unwrap();
            };
            profiler.start();
            info_span!("one").in_scope(|| work(Some(hand_over.origin()), 1));
            profiler.stop();
            profiler.start();
            // The origin is from the window before.
            work(None, 2);
            info_span!("two").in_scope(|| work(Some(hand_over.origin()), 3));
            work(None, 4);
            profiler.stop();
            drop(submit);
        });
    });
    let handed = Attribution::HandedOff;
    assert_eq!(calls(&traces[0]), [(1, Some("one"), handed)]);
    let expected = [(2, None, Attribution::Before), (3, Some("two"), handed), (4, Some("two"), handed)];
    assert_eq!(calls(&traces[1]), expected);
}

#[test]
fn a_thread_that_serves_several_decides_the_origin_of_each_call() {
    let traces = traces(|profiler, host| {
        let hand_over = profiler.hand_over();
        profiler.start();
        let one = info_span!("one").in_scope(|| hand_over.origin());
        let two = info_span!("two").in_scope(|| hand_over.origin());
        let before = hand_over.before();
        let own = tracing::dispatcher::get_default(Clone::clone);
        thread::scope(|scope| {
            scope.spawn(move || {
                let _default = tracing::dispatcher::set_default(&own);
                let queue = Mutex::new(vec![None, Some(before), Some(two), Some(one), Some(two)]);
                hand_over.adopt_each(move |work| match work {
                    DeviceWork::Launch => queue.lock().unwrap().pop()?,
                    _ => None,
                });
                info_span!("of the worker").in_scope(|| (1..=5).for_each(|number| call(host, number)));
                hand_over.release();
                call(host, 6);
            });
        });
        profiler.stop();
    });
    let handed = Attribution::HandedOff;
    let expected = [
        (1, Some("two"), handed),
        (2, Some("one"), handed),
        (3, Some("two"), handed),
        (4, None, Attribution::Before),
        (5, Some("of the worker"), Attribution::Direct),
        (6, None, Attribution::Unattributed),
    ];
    assert_eq!(calls(&traces[0]), expected);
}

#[test]
fn memory_is_counted_up_and_down() {
    let traces = traces(|profiler, host| {
        profiler.start();
        info_span!("work").in_scope(|| {
            for (address, bytes, change) in [
                (1, 100, MemoryChange::Allocate),
                (2, 50, MemoryChange::Allocate),
                (1, 0, MemoryChange::Free),
                (9, 0, MemoryChange::Free),
            ] {
                let start = host.enter_call().unwrap();
                let facts = MemoryFacts { bytes, context: 1, change, pooled: true, by_framework: false };
                host.write_memory(MemoryCall::new(start, address, facts));
                host.leave_call();
            }
        });
        profiler.stop();
    });
    let seen: Vec<_> =
        traces[0].allocations().map(|memory| (memory.bytes(), memory.delta(), memory.in_use())).collect();
    // The size of memory that was allocated before the window is not known.
    assert_eq!(seen, [(Some(100), 100, 100), (Some(50), 50, 150), (Some(100), -100, 50), (None, 0, 50)]);
    assert!(traces[0].allocations().all(|memory| memory.span().unwrap().name() == "work"));
}

#[test]
fn where_a_framework_reports_tensors_the_driver_s_allocations_are_pages() {
    let traces = traces(|profiler, host| {
        profiler.start();
        let hand_over = profiler.hand_over();
        let origin = info_span!("forward").in_scope(|| hand_over.origin());
        thread::scope(|scope| {
            scope.spawn(|| {
                hand_over.adopt(origin);
                hand_over.pool(0, PoolUse { used: 500, reserved: 800, limit: None });
                let start = host.enter_call().unwrap();
                let change = MemoryChange::Allocate;
                let facts = MemoryFacts { bytes: 4096, context: 1, change, pooled: true, by_framework: false };
                host.write_memory(MemoryCall::new(start, 0x7000, facts));
                host.leave_call();
                hand_over.allocated(0, 1, 100);
                hand_over.allocated(0, 2, 250);
                hand_over.freed(0, 1, 100);
                // This was allocated before the window, with a size that the framework knows.
                hand_over.freed(0, 9, 300);
            });
        });
        profiler.stop();
    });
    let all = traces[0].allocations().map(|it| (it.bytes(), it.in_use(), it.reserved()));
    assert_eq!(
        all.collect::<Vec<_>>(),
        [(Some(100), 600, 800), (Some(250), 850, 850), (Some(100), 750, 800), (Some(300), 450, 800)]
    );
    assert!(traces[0].allocations().all(|it| it.by_framework() && it.span().unwrap().name() == "forward"));
    // They happened after their span had ended, in which the program requested them.
    assert!(traces[0].allocations().all(|it| it.requested() == it.span().unwrap().end() && it.requested() < it.at()));
    let pages: Vec<_> = traces[0].pages().map(|page| (page.bytes(), page.in_use(), page.by_framework())).collect();
    assert_eq!(pages, [(Some(4096), 4096, false)]);
}
