//! The memory of Burn's pool, and of the tensors that it serves, without a GPU: on Vulkan, which Mesa's lavapipe runs
//! on a CPU.

#![cfg(feature = "vulkan")]

use burn::tensor::{Device, DeviceKind, Tensor};
use kernspan::{
    Activity, Collected, Profiler, Report, Schedule, Trace,
    analysis::{MemoryPool, MemorySource},
    report::{Leak, Leaks},
    trace::{Allocation, Attribution, MemoryChange, Value},
};
use kernspan_burn::attach;
use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const KIB: u64 = 1 << 10;

/// A device has one profiler at a time, so all of it is one test.
#[test]
fn memory_of_tensors_is_recorded() {
    let device = Device::vulkan(DeviceKind::DefaultDevice);
    tensors_are_allocated_and_freed_in_their_spans(&device);
    what_only_passes_between_fused_operations_takes_no_memory(&device);
    a_batch_of_another_thread_ends_with_its_use(&device);
    leaks_are_found_and_named(&device);
}

/// Runs a program under a profiler that is attached to the device.
fn profiled(schedule: Schedule, device: &Device, program: impl FnOnce(&Profiler)) -> (Vec<Arc<Trace>>, Report) {
    let collected = Collected::new();
    let builder = Profiler::builder().activities([Activity::Host, Activity::Memory]).schedule(schedule);
    let (layer, profiler) = builder.export(collected.clone()).build().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let attached = attach(&profiler, device).unwrap();
        program(&profiler);
        device.sync().unwrap();
        drop(attached);
    });
    let report = profiler.finish().unwrap();
    assert_eq!(report.losses().total(), 0, "{}", report.losses());
    (collected.traces(), report)
}

/// Makes a tensor of so many KiB.
fn tensor(kib: u64, device: &Device) -> Tensor<2> {
    Tensor::full([kib as usize, 256], 0.5, device)
}

fn changes(trace: &Trace, change: MemoryChange) -> Vec<Allocation<'_>> {
    trace.allocations().filter(|it| it.change() == change).collect()
}

fn span_of<'a>(allocation: &Allocation<'a>) -> &'a str {
    allocation.span().map_or("", |span| span.name())
}

fn tensors_are_allocated_and_freed_in_their_spans(device: &Device) {
    let old = tensor(1024, device);
    device.sync().unwrap();
    let mut kept = Vec::new();
    let mut used = 0;
    let (traces, report) = profiled(Schedule::manual(), device, |profiler| {
        profiler.start();
        for kib in [64, 128, 256, 512] {
            kept.push(info_span!("keep", kib).in_scope(|| tensor(kib, device)));
        }
        info_span!("forget").in_scope(|| drop(old));
        info_span!("forget").in_scope(|| drop(kept.remove(0)));
        used = device.memory_pool_usage().unwrap().bytes_in_use;
        // The pool is read every ten milliseconds.
        thread::sleep(Duration::from_millis(300));
        profiler.stop();
    });
    let [trace] = traces.as_slice() else { panic!("{} windows", traces.len()) };
    let allocated = changes(trace, MemoryChange::Allocate);
    assert_eq!(allocated.len(), 4);
    for allocation in &allocated {
        let kib = allocation.span().unwrap().field("kib").and_then(Value::as_u64).unwrap();
        assert_eq!((allocation.bytes(), allocation.attribution()), (Some(kib * KIB), Attribution::HandedOff));
        assert!(allocation.by_framework());
    }
    let freed = changes(trace, MemoryChange::Free);
    let mut freed: Vec<_> = freed.iter().map(|free| (span_of(free), free.bytes())).collect();
    // Burn does in any order what has no order.
    freed.sort_unstable();
    assert_eq!(freed, [("forget", Some(64 * KIB)), ("forget", Some(1024 * KIB))]);
    // The sum is what Burn has in use itself, but for small buffers of its own.
    let counted = trace.allocations().last().unwrap().in_use();
    assert!(counted.abs_diff(used) < 16 * KIB, "{counted} bytes counted, {used} in use");
    let peak = report.memory().peaks().next().unwrap().in_use;
    assert!(peak >= counted, "{peak}");

    let pool = MemoryPool::new("burn", 0);
    for (source, name) in
        [(MemorySource::Pool(pool), "memory.burn0.used"), (MemorySource::PoolReserved(pool), "memory.burn0.reserved")]
    {
        let series = report.memory_series().iter().find(|series| series.source() == source).unwrap();
        assert!(series.peak() >= used, "{source}: {}", series.peak());
        let counter = trace.counters().iter().find(|counter| counter.name() == name).unwrap();
        assert!(counter.samples().iter().any(|&(_, bytes)| bytes >= used as f64), "{counter:?}");
    }
}

fn what_only_passes_between_fused_operations_takes_no_memory(device: &Device) {
    let input = tensor(64, device);
    let mut outputs = Vec::new();
    let (traces, _) = profiled(Schedule::manual(), device, |profiler| {
        // The first round finds out what can be fused.
        for _ in 0..3 {
            profiler.start();
            let compute = || ((input.clone() * 2.0 + 1.0).sqrt() - input.clone()).exp();
            outputs.push(info_span!("compute").in_scope(compute));
            device.sync().unwrap();
            profiler.stop();
        }
    });
    for trace in &traces {
        assert_eq!(trace.operations().len(), 5);
        let allocated = changes(trace, MemoryChange::Allocate);
        let allocated: Vec<_> = allocated.iter().map(|it| (span_of(it), it.bytes())).collect();
        assert_eq!(allocated, [("compute", Some(64 * KIB))]);
    }
}

fn a_batch_of_another_thread_ends_with_its_use(device: &Device) {
    const STEPS: usize = 8;
    let (traces, _) = profiled(Schedule::new().active(STEPS as u64), device, |profiler| {
        let (send, batches) = mpsc::sync_channel(2);
        let of_loader = device.clone();
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        let loader = thread::spawn(move || {
            let _default = tracing::dispatcher::set_default(&dispatch);
            for _ in 0..STEPS {
                // It runs when the other thread wants it, which has to wait for it.
                let batch = info_span!("load").in_scope(|| tensor(32, &of_loader) * 2.0);
                send.send(batch).unwrap();
            }
        });
        for batch in batches {
            info_span!("train").in_scope(|| (batch * 2.0).mean().into_scalar::<f32>());
            profiler.step();
        }
        loader.join().unwrap();
    });
    let [trace] = traces.as_slice() else { panic!("{} windows", traces.len()) };
    let batches = |change| {
        let all = changes(trace, change);
        all.iter().filter(|it| it.bytes() == Some(32 * KIB)).map(span_of).collect::<Vec<_>>()
    };
    assert_eq!(batches(MemoryChange::Allocate).iter().filter(|span| **span == "load").count(), STEPS);
    let (allocated, freed) = (batches(MemoryChange::Allocate).len(), batches(MemoryChange::Free).len());
    assert!(allocated <= freed + 1, "{allocated} allocated, {freed} freed");
}

fn leaks_are_found_and_named(device: &Device) {
    let leaks_of = |keeps: bool| -> Vec<Leak> {
        let mut kept = Vec::new();
        let schedule = Schedule::new().wait(20).active(4).repeat(2);
        let (_, report) = profiled(schedule, device, |profiler| {
            for _ in 0..120 {
                info_span!("forward").in_scope(|| {
                    let hidden = tensor(64, device) * 2.0;
                    let copy = info_span!("remember").in_scope(|| hidden.clone() + 1.0);
                    if keeps {
                        kept.push(copy);
                    }
                    let _: f32 = hidden.mean().into_scalar();
                });
                // Long enough for several readings of the pool in each part of the run.
                thread::sleep(Duration::from_millis(25));
                profiler.step();
            }
        });
        let of_burn = |leak: &Leak| matches!(leak.source, MemorySource::Pool(_) | MemorySource::PoolReserved(_));
        match report.leaks() {
            Leaks::Found(leaks) => leaks.into_iter().filter(of_burn).collect(),
            Leaks::None => Vec::new(),
            other => panic!("{other}"),
        }
    };
    assert_eq!(leaks_of(false), []);
    let leaks = leaks_of(true);
    let [leak] = leaks.as_slice() else { panic!("{leaks:?}") };
    assert_eq!(leak.source, MemorySource::Pool(MemoryPool::new("burn", 0)));
    assert!((60_000.0..72_000.0).contains(&leak.growth.bytes_per_step), "{leak}");
    let path: Vec<_> = leak.owners[0].path.iter().map(String::as_str).collect();
    assert_eq!((path.as_slice(), leak.owners.len()), (["remember", "forward"].as_slice(), 1), "{leak}");
}
