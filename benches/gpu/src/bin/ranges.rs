//! Launches a known number of kernels in spans that are NVTX ranges, for Nsight Compute to select: see `nvtx.sh`.
//!
//! `ranges [STEPS]` launches, on each of two threads, in each step: two kernels `attention` in the span of that name,
//! with a kernel `mlp` in a span inside it; three kernels `backward` in theirs; and one kernel `data` in no span.
//! Prints the number of kernels in each span, with those in spans inside it, and whether kernspan itself could record
//! the GPU.

use gpu_bench::{Gpu, NAMES};
use kernspan::{Profiler, Schedule, report::Hint};
use std::{sync::Arc, thread};
use tracing::info_span;
use tracing_subscriber::prelude::*;

const THREADS: u32 = 2;

fn main() {
    let steps = std::env::args().nth(1).and_then(|steps| steps.parse().ok()).unwrap_or(5_u32);
    let gpu = Arc::new(Gpu::new());
    // Nothing is recorded: ranges do not depend on windows.
    let (layer, profiler) = Profiler::builder().schedule(Schedule::manual()).nvtx(true).build().expect("a profiler");
    tracing_subscriber::registry().with(layer).init();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let gpu = Arc::clone(&gpu);
            thread::spawn(move || {
                let stream = gpu.stream();
                let launch = |name: &str| {
                    let index = NAMES.iter().position(|known| *known == name).expect("a kernel");
                    gpu.launch(index, 1, thread + 1, &stream).expect("a launch");
                };
                for _ in 0..steps {
                    launch("data");
                    info_span!("attention").in_scope(|| {
                        launch("attention");
                        info_span!("mlp").in_scope(|| launch("mlp"));
                        launch("attention");
                    });
                    info_span!("backward").in_scope(|| (0..3).for_each(|_| launch("backward")));
                }
                stream.synchronize().expect("the stream");
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    for (name, launches) in [("attention", 3), ("mlp", 1), ("backward", 3)] {
        println!("launched {name} {}", launches * steps * THREADS);
    }
    println!("{}", profiler.gpu());
    let report = profiler.finish().expect("a report");
    let problems = report.hints().iter().filter(|hint| matches!(hint, Hint::NoNvtx { .. }));
    problems.for_each(|problem| println!("hint: {problem}"));
}
