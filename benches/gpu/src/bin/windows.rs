//! Measures the growth of memory over hundreds of windows in one process, and the cost of a window.
//!
//! `windows [WINDOWS] [REST_MS] [DETACH_MS]` records windows of 500 launches with a rest between them; CUPTI is
//! detached after `DETACH_MS`. Prints the growth of RAM and GPU memory, and the times of `start` and `stop`.

use gpu_bench::{Gpu, resident_memory};
use kernspan::{Profiler, Schedule};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let windows = arguments.next().unwrap_or(200);
    let rest = Duration::from_millis(arguments.next().unwrap_or(0));
    let detach = Duration::from_millis(arguments.next().unwrap_or(250));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let kernels = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&kernels);
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .detach_after(detach)
        .on_trace(move |trace| {
            counted.fetch_add(trace.work().len() as u64, Ordering::Relaxed);
        })
        .build()
        .expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let (mut opening, mut closing) = (Vec::new(), Vec::new());
    let mut before = (0, 0);
    for window in 0..windows {
        if window == 5 {
            before = (resident_memory(), gpu.free_memory());
        }
        let start = Instant::now();
        profiler.start();
        opening.push(start.elapsed());
        for launch in 0..500 {
            tracing::info_span!("layer").in_scope(|| gpu.launch(launch % 8, 1, 32, &stream).expect("a launch"));
        }
        let start = Instant::now();
        profiler.stop();
        closing.push(start.elapsed());
        let until = Instant::now() + rest;
        while Instant::now() < until {
            gpu.launch(0, 1, 32, &stream).expect("a launch");
            stream.synchronize().expect("the stream");
        }
    }
    let after = (resident_memory(), gpu.free_memory());
    let report = profiler.finish().expect("a report");
    opening.sort_unstable();
    closing.sort_unstable();
    let median_and_most = |times: &[Duration]| (times[times.len() / 2], times[times.len() - 1]);
    let ((start, most_start), (stop, most_stop)) = (median_and_most(&opening), median_and_most(&closing));
    let ram = (after.0 as f64 - before.0 as f64) / 1e6;
    let gpu_memory = (before.1 as f64 - after.1 as f64) / 1e6;
    print!("{windows} windows, {} kernels, {}; ", kernels.load(Ordering::Relaxed), report.losses());
    print!("start median {start:?} most {most_start:?}, stop median {stop:?} most {most_stop:?}; ");
    println!("grew by {ram:.1} MB of RAM and {gpu_memory:.1} MB of GPU memory since window 5");
    assert_eq!(kernels.load(Ordering::Relaxed), windows * 500, "kernels were lost");
    assert!(report.losses().is_empty());
}
