//! Are kernel times those that CUDA events give? Kernels of known lengths, each between two events.

use cudarc::driver::sys::CUevent_flags;
use gpu_bench::Gpu;
use kernspan::{Collected, Profiler};
use tracing_subscriber::prelude::*;

fn main() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let lengths = [20_000, 100_000, 500_000, 2_000_000];
    let mut events = Vec::new();
    for cycles in lengths {
        for _ in 0..50 {
            let [before, after] =
                [(), ()].map(|()| gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).expect("an event"));
            // The queue is not empty, so that the GPU does not wait for the host between the two.
            gpu.spin(100_000, &stream).expect("a launch");
            before.record(&stream).expect("an event");
            gpu.spin(cycles, &stream).expect("a launch");
            after.record(&stream).expect("an event");
            stream.synchronize().expect("the stream");
            events.push(f64::from(before.elapsed_ms(&after).expect("a time")) * 1e3);
        }
    }
    profiler.finish().expect("a report");
    let trace = collected.only();
    let mut work: Vec<_> = trace.work().collect();
    work.sort_by_key(|work| work.start());
    let times: Vec<_> = work.iter().skip(1).step_by(2).map(|work| work.duration().as_secs_f64() * 1e6).collect();
    assert_eq!(times.len(), events.len());
    for (place, cycles) in lengths.into_iter().enumerate() {
        let of = |times: &[f64]| {
            let mut times = times[50 * place..50 * (place + 1)].to_vec();
            times.sort_by(f64::total_cmp);
            times[25]
        };
        let (ours, theirs) = (of(&times), of(&events));
        println!(
            "{cycles} cycles: {ours:.3} µs by CUPTI, {theirs:.3} µs by events, which are {:.3} µs longer",
            theirs - ours
        );
    }
}
