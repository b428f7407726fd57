//! What recording adds to a kernel launch: nanoseconds on the launching thread.
//!
//! `cost [ROUNDS] [SPAN_EVERY] [ALLOCATIONS] [memory]`: launches empty kernels, in a span every `SPAN_EVERY` launches, with so many
//! allocations and frees each, which are recorded if `memory` is asked for. Launching is faster or slower by a third from process to
//! process and from second to second, so all ways to do it take turns in one process, CUPTI being let go in between; what is printed
//! is the median over the rounds, and the median of the differences within each round.

use cudarc::driver::{CudaStream, sys};
use cupti_sys::{Cupti, Driver, Subscriber, cbid, domain, flush, kind, thread_id_type};
use gpu_bench::Gpu;
use kernspan::{Activity, Profiler, Schedule};
use std::{
    ffi::c_void,
    time::{Duration, Instant},
};
use tracing_subscriber::prelude::*;

const BATCH: usize = 500;
const BATCHES: usize = 12;

fn main() {
    let number = |place: usize| std::env::args().nth(place).and_then(|text| text.parse::<usize>().ok());
    let (rounds, every, allocations) = (number(1).unwrap_or(20), number(2).unwrap_or(8), number(3).unwrap_or(0));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    let measure = || measure(&gpu, &stream, every, allocations);
    measure();
    let cupti = Cupti::find(Driver::load().expect("a driver")).expect("CUPTI");
    let memory = std::env::args().nth(4).is_some();
    let (layer, profiler) = profiler(memory);
    let subscriber = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let raw = |calls: bool, callbacks: bool| {
        let subscriber = raw_on(&cupti, calls, callbacks, callbacks && memory);
        let time = measure();
        raw_off(&cupti, subscriber);
        time
    };
    let recording = || {
        profiler.start();
        let time = tracing::dispatcher::with_default(&subscriber, measure);
        profiler.stop();
        // Until CUPTI is let go.
        std::thread::sleep(Duration::from_millis(60));
        time
    };
    let ways: [(&str, &dyn Fn() -> f64); 6] = [
        ("no profiler", &measure),
        ("kernspan, waiting", &|| tracing::dispatcher::with_default(&subscriber, measure)),
        ("CUPTI: kernels and copies", &|| raw(false, false)),
        ("CUPTI: and records of the launches", &|| raw(true, false)),
        ("CUPTI: and empty callbacks instead", &|| raw(false, true)),
        ("kernspan, recording", &recording),
    ];
    let mut times = vec![Vec::new(); ways.len()];
    for round in 0..rounds {
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            times[way].push(ways[way].1());
        }
    }
    println!(
        "a span every {every} launches, {allocations} allocations a launch, {rounds} rounds of {BATCHES} x {BATCH}"
    );
    let added = |way: usize| median(times[way].iter().zip(&times[0]).map(|(own, none)| own - none).collect());
    for (way, (name, _)) in ways.iter().enumerate() {
        println!("{name:36} {:6.0} ns a launch, {:+6.0}", median(times[way].clone()), added(way));
    }
    println!("kernspan adds {:.2} times what CUPTI adds with records of the launches", added(5) / added(3));
    let report = profiler.finish().expect("a report");
    assert!(report.losses().is_empty(), "{}", report.losses());
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

/// Nanoseconds a launch, of the median batch.
fn measure(gpu: &Gpu, stream: &CudaStream, every: usize, allocations: usize) -> f64 {
    let mut times = Vec::new();
    for _ in 0..BATCHES {
        stream.synchronize().expect("the stream");
        let start = Instant::now();
        for first in (0..BATCH).step_by(every) {
            tracing::info_span!("layer").in_scope(|| {
                for launch in first..(first + every).min(BATCH) {
                    (0..allocations).for_each(|_| allocate(stream));
                    gpu.launch(launch % 8, 1, 32, stream).expect("a launch");
                }
            });
        }
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    stream.synchronize().expect("the stream");
    median(times)
}

#[allow(unsafe_code, reason = "the driver is a C library")]
fn allocate(stream: &CudaStream) {
    let mut pointer = 0;
    // SAFETY: what is allocated is freed, and nobody uses it.
    unsafe {
        sys::cuMemAllocAsync(&mut pointer, 4096, stream.cu_stream()).result().expect("memory");
        sys::cuMemFreeAsync(pointer, stream.cu_stream()).result().expect("memory");
    }
}

const LAUNCHES: [u32; 3] = [cbid::LAUNCH_KERNEL, cbid::LAUNCH_KERNEL_PTSZ, cbid::LAUNCH_KERNEL_EX];

/// CUPTI alone: buffers are thrown away.
#[allow(unsafe_code, reason = "CUPTI is a C library")]
fn raw_on(cupti: &Cupti, calls: bool, callbacks: bool, memory: bool) -> Subscriber {
    unsafe extern "C" fn called(_: *mut c_void, _: u32, _: u32, _: *const c_void) {}
    unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        let memory = Box::leak(vec![0_u64; 1 << 15].into_boxed_slice());
        // SAFETY: CUPTI gives places to write to.
        unsafe {
            *buffer = memory.as_mut_ptr().cast();
            *size = 1 << 18;
            *most = 0;
        }
    }
    unsafe extern "C" fn completed(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, _: usize) {
        // SAFETY: it is what `requested` gave.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8)) });
    }
    // SAFETY: it does nothing.
    let subscriber = unsafe { cupti.subscribe(called, std::ptr::null_mut()) }.expect("CUPTI");
    cupti.set_thread_id_type(thread_id_type::SYSTEM).expect("CUPTI");
    // SAFETY: both do as they should.
    unsafe { cupti.activity_register_callbacks(requested, completed) }.expect("CUPTI");
    for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
        cupti.activity_enable(kind).expect("CUPTI");
    }
    for function in LAUNCHES {
        if calls {
            cupti.activity_enable_driver_api(function, true).expect("CUPTI");
        }
        if callbacks {
            cupti.enable_callback(subscriber, domain::DRIVER_API, function, true).expect("CUPTI");
        }
    }
    for function in [cbid::MEM_ALLOC_ASYNC, cbid::MEM_FREE_ASYNC].into_iter().filter(|_| memory) {
        cupti.enable_callback(subscriber, domain::DRIVER_API, function, true).expect("CUPTI");
    }
    subscriber
}

#[allow(unsafe_code, reason = "CUPTI is a C library")]
fn raw_off(cupti: &Cupti, subscriber: Subscriber) {
    for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
        cupti.activity_disable(kind).expect("CUPTI");
    }
    for function in LAUNCHES {
        let _ = cupti.activity_enable_driver_api(function, false);
    }
    cupti.activity_flush_all(flush::FORCED).expect("CUPTI");
    cupti.unsubscribe(subscriber).expect("CUPTI");
    // SAFETY: nothing else uses CUPTI now, and all is flushed.
    unsafe { cupti.finalize() }.expect("CUPTI");
}
