//! Checks that every kernel is attributed to the span that launched it, and that none is lost. A kernel has the name of
//! its span, its grid is the span's number, and its block identifies the thread.
//!
//! `exact [WINDOWS] [LAUNCHES] [REST_MS] [counters]` records a number of windows with a number of launches each, on
//! four threads with a stream each, in spans of some microseconds. Half of the threads launch all the time, also
//! between windows and across their edges. With a rest between windows, CUPTI is detached in each rest, while those
//! threads launch. With `counters`, hardware counters are sampled, too.

use gpu_bench::{Gpu, NAMES, named_span};
use kernspan::{
    Activity, Collected, Profiler, ProfilerBuilder, Schedule,
    trace::{ApiCall, Value},
};
use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};
use tracing_subscriber::prelude::*;

const THREADS: u32 = 4;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u32>().ok());
    let windows = arguments.next().unwrap_or(10);
    let launches = arguments.next().unwrap_or(10_000);
    let rest = Duration::from_millis(arguments.next().unwrap_or(0).into());

    let gpu = Arc::new(Gpu::new());
    let collected = Collected::new();
    let activities = [Activity::Host, Activity::Kernels, Activity::Copies];
    let counters = std::env::args().any(|argument| argument == "counters").then_some(Activity::Counters);
    let (layer, profiler) = Profiler::builder()
        .activities(activities.into_iter().chain(counters))
        .schedule(Schedule::manual())
        .memory_limit_bytes(4 << 30)
        .detach_after(if rest.is_zero() { ProfilerBuilder::DETACH_AFTER } else { Duration::ZERO })
        .export(collected.clone())
        .build()
        .expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();

    let stop = Arc::new(AtomicBool::new(false));
    let turn = Arc::new(Barrier::new(THREADS as usize / 2 + 1));
    let mut threads = Vec::new();
    for index in 0..THREADS {
        let (gpu, stop, turn) = (Arc::clone(&gpu), Arc::clone(&stop), Arc::clone(&turn));
        threads.push(thread::spawn(move || {
            let stream = gpu.stream();
            let count = AtomicU32::new(0);
            let work = || {
                // Each span has one to three kernels, and in every fifth one more follows after the inner span.
                let n = count.fetch_add(1, Ordering::Relaxed) % 60_000 + 1;
                let name = (n * 7 + index) as usize % NAMES.len();
                named_span!(name, n).in_scope(|| {
                    gpu.launch(name, n, index + 1, &stream).expect("a launch");
                    let inner = (name + 1) % NAMES.len();
                    named_span!(inner, n).in_scope(|| {
                        for _ in 0..n % 3 {
                            gpu.launch(inner, n, index + 1, &stream).expect("a launch");
                        }
                    });
                    if n.is_multiple_of(5) {
                        gpu.launch(name, n, index + 1, &stream).expect("a launch");
                    }
                });
                1 + n % 3 + u32::from(n.is_multiple_of(5))
            };
            let mut launched = 0_u64;
            // Half of the threads launch all the time, the others a known number in each window.
            if index % 2 == 0 {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            } else {
                for _ in 0..windows {
                    turn.wait();
                    let mut left = launches / (THREADS / 2);
                    while left > 0 {
                        let done = work();
                        launched += u64::from(done);
                        left = left.saturating_sub(done);
                    }
                    turn.wait();
                }
            }
            stream.synchronize().expect("the stream");
            launched
        }));
    }
    for _ in 0..windows {
        profiler.start();
        turn.wait();
        turn.wait();
        profiler.stop();
        thread::sleep(rest);
    }
    stop.store(true, Ordering::Relaxed);
    let known: u64 = threads.into_iter().map(|thread| thread.join().expect("a thread")).sum();
    let report = profiler.finish().expect("a report");

    let (mut right, mut wrong, mut unattributed, mut of_known, mut calls) = (0_u64, 0_u64, 0_u64, 0_u64, 0);
    let mut early = 0;
    for trace in collected.traces() {
        // Each thread waits for its stream in the end, which is a call without work.
        calls += trace.api_calls().filter(|call| call.name().starts_with("cuLaunch")).count();
        for work in trace.work() {
            let Some(kernel) = work.kernel() else { continue };
            of_known += u64::from(kernel.block[0].is_multiple_of(2));
            early += usize::from(work.call().is_some_and(|call| work.start() < call.start()));
            let Some(span) = work.span() else {
                unattributed += 1;
                let numbers = || trace.api_calls().map(ApiCall::correlation);
                println!(
                    "unattributed: thread {}, window {}, correlation {} among {:?} to {:?}, {} µs after its start",
                    kernel.block[0],
                    trace.window(),
                    work.correlation(),
                    numbers().min(),
                    numbers().max(),
                    work.start().since(trace.start()).as_micros()
                );
                continue;
            };
            let number = span.field("n").and_then(Value::as_u64);
            let is_right = span.name() == &*kernel.name && number == Some(kernel.grid[0].into());
            right += u64::from(is_right);
            wrong += u64::from(!is_right);
        }
    }
    let kernels = right + wrong + unattributed;
    println!(
        "{windows} windows: {kernels} kernels, {calls} calls: {right} right, {wrong} wrong, {unattributed} unattributed"
    );
    println!(
        "{of_known} of {known} kernels of threads that launch only in windows; {early} seem to start before their call"
    );
    println!("{}", report.losses());
    assert_eq!((wrong, unattributed, of_known), (0, 0, known), "not exact");
    assert_eq!(kernels, calls as u64);
    assert!(report.losses().is_empty());
}
