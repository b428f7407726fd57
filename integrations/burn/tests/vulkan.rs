//! Burn's fusion, threads and observers end to end, without a GPU: on Vulkan, which Mesa's lavapipe runs on a CPU.

#![cfg(feature = "vulkan")]

use burn::{
    cubecl::logging::{LaunchObservation, LaunchObserver},
    tensor::{Device, DeviceKind, Tensor},
};
use kernspan::{
    Collected, Profiler, Schedule,
    trace::{Attribution, Value},
};
use kernspan_burn::{AttachError, attach};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

/// Does work on tensors whose size identifies the span.
fn work(size: u64, device: &Device) {
    info_span!("work", size).in_scope(|| {
        let a: Tensor<2> = Tensor::full([size as usize, 16], 0.5, device);
        let b = (a.clone() * 2.0 + 1.0).sqrt() * a;
        drop(b.sum_dim(1));
    });
}

#[test]
fn operations_are_in_the_spans_that_asked_for_them() {
    let device = Device::vulkan(DeviceKind::DefaultDevice);
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).export(collected.clone()).build().unwrap();
    tracing_subscriber::registry().with(layer).init();

    struct Other;
    impl LaunchObserver for Other {
        fn launched(&self, _: &'static str) {}
    }
    let other = LaunchObservation::new(Arc::new(Other));
    assert_eq!(attach(&profiler, &device).unwrap_err(), AttachError::ObserverTaken);
    drop(other);
    let attached = attach(&profiler, &device).unwrap();
    assert_eq!(attach(&profiler, &device).unwrap_err(), AttachError::AlreadyAttached);
    assert!(attached.coverage().operations && !attached.coverage().kernels);

    // Another thread works all the time, also across the edges of windows, with odd sizes. It waits for the device
    // after each round.
    let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let other = thread::spawn({
        let (stop, rounds, device) = (Arc::clone(&stop), Arc::clone(&rounds), device.clone());
        move || {
            for turn in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                work(turn % 50 * 2 + 1, &device);
                if turn % 50 == 49 {
                    device.sync().unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            }
            device.sync().unwrap();
        }
    });
    const WINDOWS: u64 = 20;
    const SPANS: u64 = 50;
    for window in 0..WINDOWS {
        profiler.start();
        let before = rounds.load(Ordering::Relaxed);
        // The first window contains a whole round of the other thread.
        while window == 0 && rounds.load(Ordering::Relaxed) < before + 2 && !other.is_finished() {
            thread::yield_now();
        }
        (0..SPANS).for_each(|turn| work(turn * 2 + 2, &device));
        profiler.stop();
        work(1000, &device);
    }
    stop.store(true, Ordering::Relaxed);
    other.join().unwrap();
    drop(attached);
    let report = profiler.finish().unwrap();
    // A thread may be suspended while it writes for longer than the collector waits; such records are counted as late.
    let late = report.losses().late;
    assert_eq!(report.losses().total(), late, "{}", report.losses());

    let (mut even, mut odd) = (0, 0);
    for trace in collected.traces() {
        for operation in trace.operations() {
            let output = operation.fields().get("op.shape.output").and_then(Value::as_str);
            let Some(span) = operation.span() else {
                assert_eq!(operation.attribution(), Attribution::Before, "{} {output:?}", operation.name());
                continue;
            };
            assert_eq!(operation.attribution(), Attribution::HandedOff);
            let size = span.field("size").and_then(Value::as_u64).unwrap();
            let output = output.unwrap().trim_start_matches('[');
            let rows = output.split(',').next().unwrap().parse::<u64>().unwrap();
            assert_eq!(rows, size, "{} in a span of {size}", operation.name());
            *(if size % 2 == 0 { &mut even } else { &mut odd }) += 1;
        }
    }
    // Each span has six operations: full, mul, add, sqrt, mul, sum.
    let all = WINDOWS * SPANS * 6;
    assert!(even <= all && even + late >= all, "{even} of {all}, {late} late");
    assert!(odd > 0);
    let rows = report.operations().rows();
    assert!(rows.iter().any(|row| row.name == "sqrt" && row.calls + late > WINDOWS * SPANS));
}
