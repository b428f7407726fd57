//! Are kernel times true? Kernels of known lengths that read the GPU's own clock when they begin and end, each between two CUDA
//! events: three clocks for one thing.

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
    let told = stream.alloc_zeros::<i64>(2).expect("memory");
    let address = told.device_ptr(&stream).0;
    let (mut events, mut own) = (Vec::new(), Vec::new());
    for cycles in LENGTHS {
        for _ in 0..TIMES {
            let event = || gpu.context.new_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).expect("an event");
            let (before, after) = (event(), event());
            // The queue is not empty, so that the GPU does not wait for the host between the two.
            gpu.spin(100_000, &stream).expect("a launch");
            before.record(&stream).expect("an event");
            gpu.spin_and_tell(cycles, address, &stream).expect("a launch");
            after.record(&stream).expect("an event");
            stream.synchronize().expect("the stream");
            events.push(f64::from(before.elapsed_ms(&after).expect("a time")) * 1e3);
            let times = stream.clone_dtoh(&told).expect("a copy");
            own.push((times[1] - times[0]) as f64 / 1e3);
        }
    }
    profiler.finish().expect("a report");
    let trace = collected.only();
    let mut work: Vec<_> = trace.work().filter(|work| work.kernel().is_some()).collect();
    work.sort_by_key(|work| work.start());
    let ours: Vec<_> = work.iter().skip(1).step_by(2).map(|work| work.duration().as_secs_f64() * 1e6).collect();
    assert_eq!(ours.len(), events.len());
    for (place, cycles) in LENGTHS.into_iter().enumerate() {
        let of = |times: &[f64]| {
            let mut times = times[TIMES * place..TIMES * (place + 1)].to_vec();
            times.sort_by(f64::total_cmp);
            times[TIMES / 2]
        };
        let (ours, own, events) = (of(&ours), of(&own), of(&events));
        println!(
            "{cycles:8} cycles: {ours:9.3} µs by kernspan, {own:9.3} by the kernel's own clock ({:+.3}), {events:9.3} by events ({:+.3})",
            own - ours,
            events - ours
        );
    }
}
