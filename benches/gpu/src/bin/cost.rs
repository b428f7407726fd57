//! Measures the cost that recording adds to a kernel launch, in nanoseconds on the launching thread.
//!
//! `cost [ROUNDS] [SPAN_EVERY] [ALLOCATIONS] [memory|follow]` launches empty kernels, each with a number of allocations
//! and frees, which are recorded with `memory`. Where kernspan is measured, there is a span around every `SPAN_EVERY`
//! launches. With `follow`, it measures what it costs to follow all allocations while nothing is recorded.
//!
//! The time of a launch varies by a third from process to process and from second to second. So all variants take turns
//! in one process, and CUPTI is detached in between. The output is the median over the rounds, and the median of the
//! differences within each round.

use cudarc::driver::{CudaStream, sys};
use cupti_sys::{Cupti, Driver};
use gpu_bench::{Gpu, raw};
use kernspan::{Activity, MemorySnapshots, Profiler, Schedule};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

const BATCH: usize = 500;
const BATCHES: usize = 12;

fn main() {
    let number = |index: usize| std::env::args().nth(index).and_then(|text| text.parse::<usize>().ok());
    let (rounds, every, allocations) = (number(1).unwrap_or(20), number(2).unwrap_or(8), number(3).unwrap_or(0));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let bare = || measure(&gpu, &stream, every, allocations, false);
    bare();
    if std::env::args().nth(4).is_some_and(|what| what == "follow") {
        return follow(rounds, allocations, &bare, &|| measure(&gpu, &stream, every, allocations, true));
    }
    let cupti = Cupti::find(Driver::load().expect("a driver")).expect("CUPTI");
    let memory = std::env::args().nth(4).is_some();
    let (layer, profiler) = profiler(memory);
    tracing_subscriber::registry().with(layer).init();
    let spans = || measure(&gpu, &stream, every, allocations, true);
    let alone = |calls: bool, callbacks: bool| {
        let subscriber = raw::on(&cupti, calls, callbacks, callbacks && memory);
        let time = bare();
        raw::off(&cupti, subscriber);
        time
    };
    let recording = || {
        profiler.start();
        let time = spans();
        profiler.stop();
        // Waits until CUPTI is detached.
        std::thread::sleep(Duration::from_millis(60));
        time
    };
    let variants: [(&str, &dyn Fn() -> f64); 6] = [
        ("no profiler", &bare),
        ("kernspan, waiting", &spans),
        ("CUPTI: kernels and copies", &|| alone(false, false)),
        ("CUPTI: and records of the launches", &|| alone(true, false)),
        ("CUPTI: and empty callbacks instead", &|| alone(false, true)),
        ("kernspan, recording", &recording),
    ];
    let mut times = vec![Vec::new(); variants.len()];
    for round in 0..rounds {
        for turn in 0..variants.len() {
            let variant = (round + turn) % variants.len();
            times[variant].push(variants[variant].1());
        }
    }
    println!(
        "a span every {every} launches, {allocations} allocations a launch, {rounds} rounds of {BATCHES} x {BATCH}"
    );
    let added = |variant: usize| median(times[variant].iter().zip(&times[0]).map(|(own, none)| own - none).collect());
    for (variant, (name, _)) in variants.iter().enumerate() {
        println!("{name:36} {:6.0} ns a launch, {:+6.0}", median(times[variant].clone()), added(variant));
    }
    println!("kernspan adds {:.2} times what CUPTI adds with records of the launches", added(5) / added(3));
    let report = profiler.finish().expect("a report");
    assert!(report.losses().is_empty(), "{}", report.losses());
    assert_eq!(report.attributions().unattributed, 0, "of {}", report.gpu_work());
}

/// Measures with a profiler that follows allocations, and before and after, as CUPTI stays attached meanwhile.
fn follow(rounds: usize, allocations: usize, bare: &dyn Fn() -> f64, spans: &dyn Fn() -> f64) {
    let mut times = vec![(0..rounds).map(|_| bare()).collect::<Vec<_>>()];
    for snapshots in [None, Some(MemorySnapshots::in_report())] {
        let follows = snapshots.is_some();
        let builder = Profiler::builder().activities([Activity::Host, Activity::Memory]).schedule(Schedule::manual());
        let builder = snapshots.into_iter().fold(builder, kernspan::ProfilerBuilder::memory_snapshots);
        let (layer, profiler) = builder.build().expect("a profiler");
        let subscriber = tracing_subscriber::registry().with(layer);
        times.push(tracing::subscriber::with_default(subscriber, || (0..rounds).map(|_| spans()).collect()));
        assert_eq!(profiler.memory_snapshot().is_ok(), follows);
        profiler.finish().expect("a report");
    }
    times.push((0..rounds).map(|_| bare()).collect());
    let names = ["no profiler", "kernspan, waiting", "kernspan, following", "no profiler"];
    for (name, times) in names.into_iter().zip(&times) {
        println!("{name:36} {:6.0} ns a launch", median(times.clone()));
    }
    let added = median(times[2].clone()) - median(times[1].clone());
    println!("following adds {:.0} ns to an allocation or free", added / (2.0 * allocations.max(1) as f64));
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

fn profiler(memory: bool) -> (kernspan::ProfilerLayer, Profiler) {
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    activities.extend(memory.then_some(Activity::Memory));
    let builder = Profiler::builder().activities(activities).schedule(Schedule::manual());
    let (layer, profiler) = builder.detach_after(Duration::ZERO).build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    (layer, profiler)
}

/// Returns the nanoseconds per launch of the median batch.
fn measure(gpu: &Gpu, stream: &CudaStream, every: usize, allocations: usize, spans: bool) -> f64 {
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        stream.synchronize().expect("the stream");
        let start = Instant::now();
        for first in (0..BATCH).step_by(every) {
            let _span = spans.then(|| tracing::info_span!("layer").entered());
            for launch in first..(first + every).min(BATCH) {
                (0..allocations).for_each(|_| allocate(stream));
                gpu.launch(launch % 8, 1, 32, stream).expect("a launch");
            }
        }
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    stream.synchronize().expect("the stream");
    median(times)
}

#[allow(unsafe_code, reason = "the driver is a C library")]
fn allocate(stream: &CudaStream) {
    let mut pointer = 0;
    // SAFETY: the memory is freed, and never used.
    unsafe {
        sys::cuMemAllocAsync(&mut pointer, 4096, stream.cu_stream()).result().expect("memory");
        sys::cuMemFreeAsync(pointer, stream.cu_stream()).result().expect("memory");
    }
}
