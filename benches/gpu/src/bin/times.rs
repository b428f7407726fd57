//! Compares kernel times of kernspan with two other clocks: CUDA events around the kernel, and the GPU's own clock,
//! which the kernel reads at its beginning and end.

use cudarc::driver::{DevicePtr, sys::CUevent_flags};
use gpu_bench::Gpu;
use kernspan::{Collected, Profiler};
use tracing_subscriber::prelude::*;

const LENGTHS: [i64; 4] = [20_000, 100_000, 500_000, 2_000_000];
const TIMES: usize = 50;

fn main() {
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let collected = Collected::new();
    let (layer, profiler) = Profiler::builder().export(collected.clone()).build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    let times = stream.alloc_zeros::<i64>(2).expect("memory");
    let address = times.device_ptr(&stream).0;
    let (mut events, mut own) = (Vec::new(), Vec::new());
    for cycles in LENGTHS {
        for _ in 0..TIMES {
            let event = || gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).expect("an event");
            let (before, after) = (event(), event());
            // A kernel before keeps the queue full, so that the GPU does not wait for the host between the two events.
            gpu.spin(100_000, &stream).expect("a launch");
            before.record(&stream).expect("an event");
            gpu.spin_with_times(cycles, address, &stream).expect("a launch");
            after.record(&stream).expect("an event");
            stream.synchronize().expect("the stream");
            events.push(f64::from(before.elapsed_ms(&after).expect("a time")) * 1e3);
            let times = stream.clone_dtoh(&times).expect("a copy");
            own.push((times[1] - times[0]) as f64 / 1e3);
        }
    }
    profiler.finish().expect("a report");
    let trace = collected.only();
    let mut work: Vec<_> = trace.work().filter(|work| work.kernel().is_some()).collect();
    work.sort_by_key(|work| work.start());
    let ours: Vec<_> = work.iter().skip(1).step_by(2).map(|work| work.duration().as_secs_f64() * 1e6).collect();
    assert_eq!(ours.len(), events.len());
    for (index, cycles) in LENGTHS.into_iter().enumerate() {
        let median = |times: &[f64]| {
            let mut times = times[TIMES * index..TIMES * (index + 1)].to_vec();
            times.sort_by(f64::total_cmp);
            times[TIMES / 2]
        };
        let (ours, own, events) = (median(&ours), median(&own), median(&events));
        let (by_own, by_events) = (own - ours, events - ours);
        print!("{cycles:8} cycles: {ours:9.3} µs by kernspan, ");
        println!("{own:9.3} by the kernel's own clock ({by_own:+.3}), {events:9.3} by events ({by_events:+.3})");
    }
}
