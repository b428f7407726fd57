//! Measures whether the program is slower while a window is written. It prints the times of steps of 200 launches
//! before, during and after a window of a million kernels is decoded, correlated and exported in the background, and
//! the time of that.

use gpu_bench::Gpu;
use kernspan::{Chrome, Perfetto, Profiler, Schedule};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

fn main() {
    let kernels = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let folder = std::env::temp_dir().join(format!("kernspan-steady-{}", std::process::id()));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let written = Arc::new(AtomicBool::new(false));
    let signal = Arc::clone(&written);
    let (layer, profiler) = Profiler::builder()
        .schedule(Schedule::manual())
        .memory_limit_bytes(2 << 30)
        .export(Chrome::to_dir(&folder))
        .export(Perfetto::to_dir(&folder))
        .on_trace(move |_| signal.store(true, Ordering::Release))
        .build()
        .expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let step = || {
        let start = Instant::now();
        for first in (0..200).step_by(8) {
            tracing::info_span!("layer").in_scope(|| {
                (first..(first + 8).min(200)).for_each(|n| gpu.launch(n % 8, 1, 32, &stream).expect("a launch"));
            });
        }
        stream.synchronize().expect("the stream");
        start.elapsed()
    };
    let steps = |goes_on: &dyn Fn(usize) -> bool| {
        let mut times = Vec::new();
        while goes_on(times.len()) {
            times.push(step());
        }
        times
    };
    let before = steps(&|done| done < 2000);
    profiler.start();
    let recording = steps(&|done| done < kernels / 200);
    let edge = Instant::now();
    profiler.stop();
    let edge = edge.elapsed();
    let started = Instant::now();
    let during = steps(&|_| !written.load(Ordering::Acquire));
    let took = started.elapsed();
    std::thread::sleep(Duration::from_secs(1));
    let after = steps(&|done| done < 2000);
    for (name, times) in [("before", before), ("recording", recording), ("while written", during), ("after", after)] {
        let mut times = times;
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        println!("{name}: {} steps, median {:?}, 99 % within {:?}, fastest {:?}", times.len(), at(50), at(99), at(0));
    }
    println!("{kernels} kernels decoded, correlated and written (JSON and protobuf) in {took:?}; stop() took {edge:?}");
    let report = profiler.finish().expect("a report");
    for file in report.files() {
        println!("{} MB {}", std::fs::metadata(file).map_or(0, |file| file.len()) / 1_000_000, file.display());
    }
    println!("{}, peak RAM {} MB", report.losses(), peak_memory() / 1024);
    std::fs::remove_dir_all(&folder).expect("the folder");
}

/// Returns the peak of resident memory in kilobytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}
