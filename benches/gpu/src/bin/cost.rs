//! What recording adds to a kernel launch: nanoseconds on the launching thread.
//!
//! `cost MODE [SPAN_EVERY] [ALLOCATIONS]`: one mode a process, since CUPTI leaves traces in it. Modes: `none` (no profiler),
//! `raw` (CUPTI alone, kernels, copies, and records of the launching calls), `raw-kernels`, `waiting`, `after` (waiting after a
//! window), `recording`, `memory` (recording, with allocations). A span is opened every `SPAN_EVERY` launches. Prints the mode, the
//! fastest batch and the median one.

use cudarc::driver::{CudaStream, sys};
use cupti_sys::{Cupti, Driver, cbid, kind, thread_id_type};
use gpu_bench::Gpu;
use kernspan::{Activity, Profiler, Schedule};
use std::{sync::Arc, time::Instant};
use tracing_subscriber::prelude::*;

const BATCH: usize = 500;
const BATCHES: usize = 60;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("none", String::as_str);
    let number = |place: usize| arguments.get(place).and_then(|text| text.parse::<usize>().ok());
    let (every, allocations) = (number(1).unwrap_or(8), number(2).unwrap_or(0));
    let gpu = Gpu::new();
    let stream = gpu.stream();
    measure(&gpu, &stream, every, allocations, 5);
    let batches = match mode {
        "none" => measure(&gpu, &stream, every, allocations, BATCHES),
        "raw" => {
            raw(true);
            measure(&gpu, &stream, every, allocations, BATCHES)
        }
        "raw-kernels" => {
            raw(false);
            measure(&gpu, &stream, every, allocations, BATCHES)
        }
        _ => profiled(mode, &gpu, &stream, every, allocations),
    };
    let mut sorted = batches;
    sorted.sort_by(f64::total_cmp);
    println!("{mode} {every} {allocations} {:.0} {:.0}", sorted[0], sorted[sorted.len() / 2]);
}

fn profiled(mode: &str, gpu: &Gpu, stream: &Arc<CudaStream>, every: usize, allocations: usize) -> Vec<f64> {
    let mut activities = vec![Activity::Host, Activity::Kernels, Activity::Copies];
    if mode == "memory" {
        activities.push(Activity::Memory);
    }
    let builder = Profiler::builder().activities(activities).schedule(Schedule::manual()).memory_limit(4 << 30);
    let (layer, profiler) = builder.build().expect("a profiler");
    assert!(profiler.gpu().is_available(), "{}", profiler.gpu());
    tracing_subscriber::registry().with(layer).init();
    match mode {
        "waiting" => {}
        "after" => {
            profiler.start();
            measure(gpu, stream, every, allocations, 3);
            profiler.stop();
            std::thread::sleep(std::time::Duration::from_millis(600));
        }
        "recording" | "memory" => drop(profiler.start()),
        _ => panic!("no mode {mode}"),
    }
    let batches = measure(gpu, stream, every, allocations, BATCHES);
    let report = profiler.finish().expect("a report");
    assert!(report.losses().is_empty(), "{}", report.losses());
    batches
}

/// Nanoseconds a launch, batch by batch.
fn measure(gpu: &Gpu, stream: &Arc<CudaStream>, every: usize, allocations: usize, batches: usize) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..batches {
        stream.synchronize().expect("the stream");
        let start = Instant::now();
        for first in (0..BATCH).step_by(every) {
            tracing::info_span!("layer").in_scope(|| {
                for launch in first..(first + every).min(BATCH) {
                    for _ in 0..allocations {
                        allocate(stream);
                    }
                    gpu.launch(launch % 8, 1, 32, stream).expect("a launch");
                }
            });
        }
        times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
    }
    stream.synchronize().expect("the stream");
    times
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

/// CUPTI alone: buffers are thrown away.
#[allow(unsafe_code, reason = "CUPTI is a C library")]
fn raw(calls: bool) {
    unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
        let memory = Box::leak(vec![0_u64; 1 << 17].into_boxed_slice());
        // SAFETY: CUPTI gives places to write to.
        unsafe {
            *buffer = memory.as_mut_ptr().cast();
            *size = 1 << 20;
            *most = 0;
        }
    }
    unsafe extern "C" fn completed(_: *mut std::ffi::c_void, _: u32, buffer: *mut u8, size: usize, _: usize) {
        // SAFETY: it is what `requested` gave.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(buffer.cast::<u64>(), size / 8)) });
    }
    let cupti = Box::leak(Box::new(Cupti::find(Driver::load().expect("a driver")).expect("CUPTI")));
    cupti.set_thread_id_type(thread_id_type::SYSTEM).expect("CUPTI");
    // SAFETY: both do as they should.
    unsafe { cupti.activity_register_callbacks(requested, completed) }.expect("CUPTI");
    for kind in [kind::CONCURRENT_KERNEL, kind::MEMCPY, kind::MEMSET] {
        cupti.activity_enable(kind).expect("CUPTI");
    }
    let launches = [cbid::LAUNCH_KERNEL, cbid::LAUNCH_KERNEL_PTSZ, cbid::LAUNCH_KERNEL_EX, cbid::GRAPH_LAUNCH];
    for function in launches.into_iter().filter(|_| calls) {
        cupti.activity_enable_driver_api(function, true).expect("CUPTI");
    }
}
